package consume

// Variables that tests read, or set before they begin.

var HandOverIn = &handOverIn
