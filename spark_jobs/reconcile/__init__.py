"""The job `reconcile`: what became of records that only a lost site had."""
