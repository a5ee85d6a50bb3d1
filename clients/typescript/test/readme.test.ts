import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { compile, root } from './snippets.js'
import { databaseUrl, namespace, sql, until } from './world.js'

const snippets = [...readFileSync(join(root, 'README.md'), 'utf8').matchAll(/```ts\n(.*?)```/gs)].map((m) => m[1]!)

// What the text of the README takes for granted.
const prelude = `
import { type Middleware, Permanent, Posthorn, PosthornError, raw, RetryAfter, Snooze, subscribed } from 'posthorn'
const smtp = { send: async (_: string, signal: AbortSignal) => (signal.aborted ? 'busy' : 'sent') as string }
const search = { index: async (_: unknown[]) => undefined }
const bank = { charge: async (order: string, cents: number) => ({ id: order + cents }), knows: async (_: string) => true }
const ph = await Posthorn.open({ databaseUrl: process.env.DATABASE_URL })
const tx = await ph.pool.connect()
const stop = new AbortController()
process.on('SIGTERM', () => stop.abort())
await ph.publish(ph.pool, { type: 'order.placed', key: '1', payload: { cents: 1, currency: 'EUR' } })
await ph.enqueue(ph.pool, { title: 'Order 1', tags: ['orders'], payload: { order: '1', cents: 1 } })
for (const name of ['mail', 'polled']) await ph.pool.query('select posthorn.define_group($1, $2)', [ph.namespace, name])
export { Permanent, PosthornError, raw, RetryAfter, Snooze, subscribed, smtp, search, bank }
export type { Middleware }
`
const epilogue = `
tx.release()
await ph.run(stop.signal)
await ph.close()
`

test('the programs of the README work', { timeout: 300_000 }, async (t) => {
  const programs = compile('readme', snippets.map((snippet) => inNamespace(snippet.includes('import ') ? snippet : prelude + snippet + epilogue)))
  const space = await namespace()
  await sql(`create schema ${space}; set search_path = ${space};
    create table charges (order_id text, cents int); create table orders (id text, cents int); create table totals (cents int);
    create table bookings (order_id text, what text); create table cursors (cursor text); insert into totals values (0)`)
  t.after(() => sql(`drop schema ${space} cascade`))
  const url = `${databaseUrl}${databaseUrl.includes('?') ? '&' : '?'}options=${encodeURIComponent(`-c search_path=${space}`)}`
  for (const [i, path] of programs.entries()) {
    const program = spawn(process.execPath, [path], { env: { ...process.env, DATABASE_URL: url, NAMESPACE: space }, stdio: ['ignore', 'ignore', 'inherit'] })
    t.after(() => program.kill('SIGKILL'))
    const ended = once(program, 'exit')
    const nodes = () => sql('select from posthorn.nodes where namespace = $1', [space])
    await until(`snippet ${i} runs`, async () => program.exitCode !== null || (await nodes()).length > 0)
    if (i === 0) await until('the order is charged', async () => (await sql(`select from ${space}.charges where order_id = '7'`)).length === 1)
    if (i === 1) {
      await until('the mail is sent', async () =>
        (await sql(`select from posthorn.jobs where namespace = $1 and title = 'Confirm order 9' and status = 'COMPLETED'`, [space])).length === 1)
    }
    program.kill('SIGTERM')
    assert.deepEqual(await ended, [0, null], snippets[i])
  }
})

// A program in TypeScript has no types of OpenTelemetry unless it wants spans.
test('the declarations need no other package than pg', () => {
  const src = join(root, 'dist', 'src')
  for (const file of readdirSync(src).filter((name) => name.endsWith('.d.ts'))) {
    const packages = [...readFileSync(join(src, file), 'utf8').matchAll(/(?:from|import\() ?'([^.'][^']*)'/g)].map((m) => m[1])
    assert.deepEqual(packages.filter((name) => name !== 'pg'), [], file)
  }
})

/** Lets a program use a namespace of the test. */
function inNamespace(program: string): string {
  return program.replaceAll('process.env.DATABASE_URL', 'process.env.DATABASE_URL, namespace: process.env.NAMESPACE')
}
