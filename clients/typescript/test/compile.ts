// Compiles programs of guides for a test in Go: node compile.js FOLDER. It reads a list of programs in JSON, and prints a
// list of the paths of the results.
import { json } from 'node:stream/consumers'
import { compile } from './snippets.js'

console.log(JSON.stringify(compile(process.argv[2]!, (await json(process.stdin)) as string[])))
