import assert from 'node:assert/strict'
import test from 'node:test'
import { pause } from '../src/wait.js'
import { child, deadLetters, effects, gate, kill, namespace, open, run, sql, until } from './world.js'

test('effect and acknowledgement commit together', async (t) => {
  const ph = await open(t)
  const table = await effects(t)
  const g = ph.group('g', { start: 'beginning', delays: [1, 1] })
  const failed = new Set<bigint>()
  g.handleTx('h', 'order.*', async (tx, e) => {
    await tx.query(`insert into ${table} (event) values ($1)`, [e.id])
    await ph.publish(tx, { type: 'noted', payload: e.payload })
    if (e.id % 2n === 1n && !failed.has(e.id)) {
      failed.add(e.id)
      throw new Error('once')
    }
  })
  const ids = await ph.publish(ph.pool, Array.from({ length: 20 }, () => ({ type: 'order.placed' })))
  run(ph)
  await until('all are noted', async () => (await sql(`select from ${table}`)).length === 20)
  await until('the group is done', async () =>
    (await sql('select from posthorn.retries r join posthorn.groups g on g.id = r.group_id join posthorn.namespaces n on n.id = g.namespace_id where n.namespace = $1', [ph.namespace])).length === 0)
  assert.deepEqual((await sql(`select event from ${table} order by event`)).map((row) => BigInt(row.event)), ids)
  const noted: string[] = []
  for await (const e of ph.read({ filter: { types: ['noted'] } })) noted.push(e.type)
  assert.equal(noted.length, 20)
})

test('an effect under a lost lease is not committed', async (t) => {
  const ph = await open(t)
  const table = await effects(t)
  const deliveries: number[] = []
  ph.group('g', { start: 'beginning' }).handleTx('h', '>', async (tx, e) => {
    deliveries.push(e.delivery)
    await tx.query(`insert into ${table} (event, note) values ($1, $2)`, [e.id, String(deliveries.length)])
    if (deliveries.length === 1) await sql('select posthorn.release(l.id, l.attempt) from posthorn.leases l where l.node = $1', [ph.nodeId])
  })
  await ph.publish(ph.pool, [{ type: 'x' }, { type: 'y' }])
  run(ph)
  await until('both are handled', async () => (await sql(`select from ${table}`)).length === 2)
  assert.deepEqual((await sql(`select note from ${table} order by id`)).map((row) => row.note), ['2', '3'])
})

test('several handlers have their effects once each', async (t) => {
  const ph = await open(t)
  const table = await effects(t)
  const g = ph.group('g', { start: 'beginning', delays: [1] })
  for (const name of ['a', 'b', 'c']) g.handleTx(name, '>', (tx, e) => tx.query(`insert into ${table} (event, note) values ($1, $2)`, [e.id, name]))
  g.handle('plain', '>', (e) => ph.pool.query(`insert into ${table} (event, note) values ($1, 'plain')`, [e.id]))
  await ph.publish(ph.pool, [{ type: 'x' }, { type: 'y' }])
  run(ph)
  await until('all have run', async () => (await sql(`select from ${table}`)).length === 8)
  assert.deepEqual((await sql(`select note, count(*)::int from ${table} group by 1 order by 1`)).map((row) => [row.note, row.count]),
    [['a', 2], ['b', 2], ['c', 2], ['plain', 2]])
})

test('a handler that swallows the error of a statement has failed', async (t) => {
  const ph = await open(t)
  ph.group('g', { start: 'beginning', attempts: 1 }).handleTx('h', '>', (tx) => tx.query('select 1/0').catch(() => undefined))
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  await until('a dead letter', async () => (await deadLetters(ph, 'g')).length === 1)
  assert.match((await deadLetters(ph, 'g'))[0]!.error, /threw no error/)
})

test('a handler that returns after its time has failed, since its transaction is broken', async (t) => {
  const ph = await open(t)
  ph.group('g', { start: 'beginning', attempts: 1, timeout: 10 }).handleTx('h', '>', (_tx, _e, { signal }) => pause(3600_000, signal))
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  await until('a dead letter', async () => (await deadLetters(ph, 'g')).length === 1)
  assert.match((await deadLetters(ph, 'g'))[0]!.error, /used up its time of 10 ms/)
})

test('a deferred constraint fails the event', async (t) => {
  const ph = await open(t)
  const table = await effects(t)
  await sql(`alter table ${table} add constraint once unique (note) deferrable initially deferred`)
  ph.group('g', { start: 'beginning', attempts: 1 }).handleTx('h', '>', (tx) => tx.query(`insert into ${table} (note) values ('same')`))
  await ph.publish(ph.pool, [{ type: 'x' }, { type: 'y' }])
  run(ph)
  await until('a dead letter', async () => (await deadLetters(ph, 'g')).length === 1)
  assert.equal((await sql(`select from ${table}`)).length, 1)
})

test('a handler cannot end its transaction, or use it when it has returned', async (t) => {
  const ph = await open(t)
  const refused: string[] = []
  const late = gate<unknown>()
  ph.group('g', { start: 'beginning' }).handleTx('h', '>', async (tx) => {
    for (const text of ['commit', ' ROLLBACK', '-- a\nend', 'begin', 'prepare transaction $$x$$']) {
      await tx.query(text).catch((error: Error) => refused.push(error.message))
    }
    await tx.query('savepoint a')
    await tx.query('rollback to a')
    setImmediate(async () => late.open(await (async () => tx.query('select 1'))().catch((error: unknown) => error)))
  })
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  assert.match(String(await late.promise), /has returned/)
  assert.equal(refused.length, 5)
})

test('batches in transactions have their effects once', async (t) => {
  const ph = await open(t)
  const table = await effects(t)
  let failed = false
  ph.group('g', { start: 'beginning', delays: [1] }).handleBatchTx('h', '>', async (tx, events) => {
    await tx.query(`insert into ${table} (event) select unnest($1::bigint[])`, [events.map((e) => e.id)])
    if (!failed) {
      failed = true
      throw new Error('once')
    }
  })
  await ph.publish(ph.pool, Array.from({ length: 50 }, () => ({ type: 'x' })))
  run(ph)
  await until('all are noted', async () => (await sql(`select distinct event from ${table}`)).length === 50)
  assert.equal((await sql(`select from ${table}`)).length, 50)
})

test('transactions that collide are repeated, and count as one attempt', async (t) => {
  const ph = await open(t)
  const table = await effects(t)
  let calls = 0
  ph.group('g', { start: 'beginning', attempts: 1 }).handleTx('h', '>', async (tx, e) => {
    await tx.query(`insert into ${table} (event) values ($1)`, [e.id])
    if (++calls < 3) await tx.query("do $$ begin raise exception 'collision' using errcode = '40001'; end $$")
  })
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  await until('it is noted', async () => (await sql(`select from ${table}`)).length === 1)
  assert.equal(calls, 3)
})

test('effects happen once though processes are killed', async (t) => {
  const space = await namespace()
  const table = await effects(t)
  const ph = await open(t, { namespace: space })
  const ids: bigint[] = []
  const start = () => {
    const process_ = child(t, 'effects', space, table)
    let handled = 0
    return { process_, handled: (n: number) => new Promise<void>((resolve) => process_.on('message', () => ++handled === n && resolve())) }
  }
  for (let round = 0; round < 5; round++) {
    const { process_, handled } = start()
    ids.push(...await ph.publish(ph.pool, Array.from({ length: 200 }, () => ({ type: 'x' }))))
    await handled(20 + 15 * round)
    await kill(process_)
  }
  start()
  await until('all are noted', async () => (await sql(`select distinct event from ${table}`)).length === ids.length)
  const events = (await sql(`select event from ${table} order by event`)).map((row) => BigInt(row.event))
  assert.deepEqual(events, ids)
})

test('the events of a killed process are handled by another', async (t) => {
  const space = await namespace()
  const ph = await open(t, { namespace: space })
  const id = await ph.publish(ph.pool, { type: 'x' })
  const process_ = child(t, 'hang', space, '')
  await new Promise((resolve) => process_.once('message', resolve))
  await kill(process_)
  const seen: [bigint, number][] = []
  ph.group('hang').handle('h', '>', (e) => seen.push([e.id, e.delivery]))
  run(ph)
  await until('it comes again', () => seen.length === 1)
  assert.deepEqual(seen, [[id, 2]])
})
