package observe

// TryAgain is set before the tests begin.
var TryAgain = &tryAgain
