"""What encrypted logs cost a running pair."""
