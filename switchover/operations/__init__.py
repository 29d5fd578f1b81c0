"""Operations: plans of journaled steps, and the executor that runs them across crashes."""
