"""Small mistakes, put into the safety-critical rooms one at a time: the tests and the simulator must find them."""
