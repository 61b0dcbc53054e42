package main

func main() { nothing() }
