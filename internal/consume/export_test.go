package consume

// What tests wait for, or set before they begin.
const ChainFor = chainFor

var HandOverIn = &handOverIn
