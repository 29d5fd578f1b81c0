"""What the sites said of themselves while the run lasted, judged by what is known afterwards."""
