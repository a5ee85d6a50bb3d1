package observe

// RecheckInterval is shortened before the tests begin.
var RecheckInterval = &recheckInterval
