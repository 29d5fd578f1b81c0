"""The results of an audit for people: the folder, the page, plots, screens and advice."""
