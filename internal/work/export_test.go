package work

// Always is set before the tests begin.
var Always = &always
