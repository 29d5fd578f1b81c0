"""What an audit leaves for people: the folder, the page, plots, screens and advice."""
