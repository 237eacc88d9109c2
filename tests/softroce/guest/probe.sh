# Whether a guest comes up at all.
true
