"""What tests of this package, and of those who use it, may build on."""
