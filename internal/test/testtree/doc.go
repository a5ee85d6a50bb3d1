// Package testtree has the tests of the tree itself: its pages, its options and what its packages need.
package testtree
