import assert from 'node:assert/strict'
import test from 'node:test'
import { type Event, type Reader } from '../src/index.js'
import { open, run, sql, until } from './world.js'

async function collect(reader: Reader, n = Infinity): Promise<string[]> {
  const types: string[] = []
  for await (const e of reader) {
    types.push(e.type)
    if (types.length === n) break
  }
  return types
}

test('a reader begins where it is told, and goes on where it was left', async (t) => {
  const ph = await open(t)
  const [a] = await ph.publish(ph.pool, ['a', 'b', 'c', 'd'].map((type) => ({ type })))
  assert.deepEqual(await collect(ph.read()), ['a', 'b', 'c', 'd'])
  assert.deepEqual(await collect(ph.read({ from: 'now' })), [])
  assert.ok((await collect(ph.read({ afterEvent: a! }))).join('').endsWith('bcd'))
  const reader = ph.read()
  assert.equal(reader.cursor, undefined)
  assert.deepEqual(await collect(reader, 2), ['a', 'b'])
  assert.deepEqual(await collect(ph.read({ cursor: reader.cursor! })), ['c', 'd'])
  assert.deepEqual(await collect(reader), ['c', 'd'])
  await ph.publish(ph.pool, { type: 'e' })
  assert.deepEqual(await collect(reader), ['e'])
  assert.throws(() => ph.read({ cursor: 'x', from: 'now' }), { code: 'invalid' })
})

test('a reader that follows gets each event, also those that commit late', async (t) => {
  const ph = await open(t)
  const stop = new AbortController()
  const seen: string[] = []
  const reading = (async () => {
    for await (const e of ph.read({ follow: true, signal: stop.signal })) seen.push(e.type)
  })()
  const late = await ph.pool.connect()
  await late.query('begin')
  await ph.publish(late, { type: 'late' })
  await ph.publish(ph.pool, { type: 'early' })
  await until('one comes', () => seen.length === 1)
  await late.query('commit')
  late.release()
  await until('the other comes', () => seen.length === 2)
  assert.deepEqual(seen, ['early', 'late'])
  stop.abort()
  await reading
})

test('filters select events', async (t) => {
  const ph = await open(t)
  await ph.publish(ph.pool, [
    { type: 'order.placed', key: '1', tags: ['x', 'y'] }, { type: 'order.paid', key: '2', tags: ['x'], stream: 'orders' }, { type: 'user', key: '1' },
  ])
  assert.deepEqual(await collect(ph.read({ filter: { types: ['order.*'] } })), ['order.placed', 'order.paid'])
  assert.deepEqual(await collect(ph.read({ filter: { streams: ['orders'] } })), ['order.paid'])
  assert.deepEqual(await collect(ph.read({ filter: { keys: ['1'] } })), ['order.placed', 'user'])
  assert.deepEqual(await collect(ph.read({ filter: { tagsAny: ['x', 'z'] } })), ['order.placed', 'order.paid'])
  assert.deepEqual(await collect(ph.read({ filter: { tagsAll: ['x', 'y'] } })), ['order.placed'])
  assert.throws(() => ph.read({ filter: { keys: [] } }), { code: 'invalid' })
})

test('a schedule publishes events and enqueues jobs', async (t) => {
  const ph = await open(t)
  const soon = new Date(Date.now() + 2000)
  await ph.schedule(ph.pool, { name: 'tick', at: soon, type: 'tick', payload: { n: 1 }, key: 'k', metadata: { m: 1 } })
  await assert.rejects(ph.schedule(ph.pool, { name: 'job', every: 1500, type: 'x' }), /every is 1500 ms/)
  await ph.schedule(ph.pool, { name: 'job', every: 1000, job: { title: 'from a schedule', payload: [1], tags: ['s'] } })
  await ph.schedule(ph.pool, { name: 'daily', cron: '30 8 * * mon-fri', timeZone: 'Europe/Berlin', catchUp: 'skip', type: 'daily' })
  await assert.rejects(ph.schedule(ph.pool, { name: 'x', type: 'x' }), { code: 'invalid' })
  const ticks: Event[] = []
  ph.group('g', { start: 'beginning' }).handle('h', 'tick', (e) => ticks.push(e))
  run(ph)
  await until('it ticks', () => ticks.length === 1)
  assert.deepEqual([ticks[0]!.payload, ticks[0]!.key, ticks[0]!.metadata['producer']], [{ n: 1 }, 'k', 'scheduler'])
  await until('a job comes', async () =>
    (await sql('select from posthorn.jobs j where title = $1 and namespace = $2', ['from a schedule', ph.namespace])).length > 1)
  await ph.unschedule(ph.pool, 'job')
  assert.equal(await ph.unschedule(ph.pool, 'daily'), true)
  assert.equal(await ph.unschedule(ph.pool, 'daily'), false)
})
