"""What a site keeps of the audits of its pair: notes of runs, their reports, and those that run now."""
