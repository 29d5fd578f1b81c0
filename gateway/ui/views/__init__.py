"""The views of the page: what each shows, made of looks at the pair and documents of the site."""
