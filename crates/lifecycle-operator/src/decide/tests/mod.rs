//! What is decided, told as sentences of the specification.
