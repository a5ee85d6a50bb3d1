package consume

// What tests wait for, or set before they begin.

var HandOverIn = &handOverIn
