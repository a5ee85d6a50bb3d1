import assert from 'node:assert/strict'
import test from 'node:test'
import { RetryAfter } from '../src/index.js'
import { deadLetters, gate, namespace, open, run, sql, until } from './world.js'

const leases = async (space: string) =>
  (await sql('select l.until from posthorn.leases l join posthorn.namespaces n on n.id = l.namespace_id where n.namespace = $1 and l.until is not null', [space])).length

test('fetched events are done, retried or dead as they are answered', async (t) => {
  const ph = await open(t)
  const g = ph.group('g', { start: 'beginning' })
  await ph.publish(ph.pool, ['ack', 'nack', 'term'].map((type) => ({ type })))
  const [ack, nack, term] = await g.fetch(10)
  await ack!.ack()
  await nack!.nack(new RetryAfter(1))
  await term!.term(new Error('of no use'))
  await assert.rejects(ack!.ack(), { code: 'conflict' })
  assert.equal(await leases(ph.namespace), 0)
  assert.deepEqual((await deadLetters(ph, 'g')).map((d) => [d.type, d.error]), [['term', 'of no use']])
  const [again] = await g.fetch(10)
  assert.deepEqual([again!.event.type, again!.event.delivery], ['nack', 2])
  await again!.ack()
})

test('fetch waits until there is an event, or the signal comes', async (t) => {
  const ph = await open(t)
  const g = ph.group('g')
  const aborted = new AbortController()
  const waiting = g.fetch(1, { signal: aborted.signal })
  aborted.abort(new Error('enough'))
  await assert.rejects(waiting, /enough/)
  const next = g.fetch(1)
  await ph.publish(ph.pool, { type: 'x' })
  await (await next)[0]!.ack()
})

test('a lease is extended, and one that is lost cannot be answered', async (t) => {
  const space = await namespace()
  const [a, b] = [await open(t, { namespace: space }), await open(t, { namespace: space })]
  const [first, second] = [a.group('g', { start: 'beginning', leaseFor: 1000 }), b.group('g', { leaseFor: 1000 })]
  await a.publish(a.pool, { type: 'x' })
  const [d] = await first.fetch(1)
  await d!.extend(3600_000)
  const [row] = await sql("select l.until > now() + interval '50 minutes' as far from posthorn.leases l where l.node = $1", [a.nodeId])
  assert.equal(row.far, true)
  await d!.extend(1)
  const [taken] = await second.fetch(1)
  assert.equal(taken!.event.delivery, 2)
  await assert.rejects(d!.ack(), { code: 'lease_lost' })
  await taken!.ack()
})

test('a loop over deliveries gives back what it leaves', async (t) => {
  const space = await namespace()
  const ph = await open(t, { namespace: space })
  const g = ph.group('g', { start: 'beginning' })
  await ph.publish(ph.pool, Array.from({ length: 5 }, (_, n) => ({ type: `t${n}` })))
  const seen: string[] = []
  for await (const d of g.deliveries()) {
    seen.push(d.event.type)
    if (d.event.type === 't2') break
    await d.ack()
  }
  assert.equal(await leases(space), 0)
  for await (const d of g.deliveries()) {
    seen.push(`${d.event.type} ${d.event.delivery}`)
    await d.ack()
    if (seen.length === 6) break
  }
  assert.deepEqual(seen, ['t0', 't1', 't2', 't2 1', 't3 1', 't4 1'])
})

for (const noticed of ['before the next event', 'by the program'] as const) {
  test(`a loop over deliveries leaves a lease that is lost: noticed ${noticed}`, async (t) => {
    const space = await namespace()
    const warnings: string[] = []
    const logger = { info: () => undefined, warn: (message: string) => warnings.push(message), error: () => undefined }
    const [a, b] = [await open(t, { namespace: space, logger }), await open(t, { namespace: space })]
    const [first, second] = [a.group('g', { start: 'beginning' }), b.group('g')]
    await a.publish(a.pool, ['x', 'y', 'z'].map((type) => ({ type })))
    const seen: string[] = []
    for await (const d of first.deliveries()) {
      seen.push(d.event.type)
      if (d.event.type === 'last') {
        await d.ack()
        break
      }
      if (noticed === 'by the program') {
        await sql('select posthorn.release(l.id, l.attempt) from posthorn.leases l where l.node = $1', [a.nodeId])
        await assert.rejects(d.extend(30_000), { code: 'lease_lost' })
      } else {
        await d.extend(1)
      }
      const taken = await second.fetch(3)
      assert.deepEqual(taken.map((other) => other.event.type), ['x', 'y', 'z'])
      for (const other of taken) await other.ack()
      await b.publish(b.pool, { type: 'last' })
    }
    assert.deepEqual(seen, ['x', 'last'])
    assert.deepEqual(warnings, ['lease lost, its events go to another worker'])
  })
}

test('in an ordered group a nack gives back the events after it', async (t) => {
  const ph = await open(t)
  const g = ph.group('g', { start: 'beginning', order: 'total', delays: [1] })
  await ph.publish(ph.pool, ['a', 'b', 'c'].map((type) => ({ type })))
  const [a, b, c] = await g.fetch(10)
  await a!.ack()
  await b!.nack()
  await assert.rejects(c!.ack(), { code: 'lease_lost' })
  const types: string[] = []
  while (types.length < 2) for (const d of await g.fetch(10)) {
    types.push(d.event.type)
    await d.ack()
  }
  assert.deepEqual(types, ['b', 'c'])
})

test('answers are saved before the last one, and a client that closes gives back the rest', async (t) => {
  const space = await namespace()
  const [a, b] = [await open(t, { namespace: space }), await open(t, { namespace: space })]
  await a.publish(a.pool, ['a', 'b', 'c'].map((type) => ({ type })))
  const [first] = await a.group('g', { start: 'beginning' }).fetch(3)
  await first!.ack()
  await a.close()
  const rest = await b.group('g').fetch(3)
  assert.deepEqual(rest.map((d) => [d.event.type, d.event.delivery]), [['b', 1], ['c', 1]])
  for (const d of rest) await d.ack()
})

test('run with a signal that has come waits no longer than drainFor for answers', async (t) => {
  const ph = await open(t, { drainFor: 1 })
  const g = ph.group('g', { start: 'beginning' })
  await ph.publish(ph.pool, { type: 'x' })
  const [d] = await g.fetch(1)
  let ended = false
  void ph.run(AbortSignal.abort()).then(() => (ended = true))
  await until('run ends', () => ended).finally(() => d!.isOpen && d!.ack())
  assert.equal(await leases(ph.namespace), 0)
})

test('run waits for answers', async (t) => {
  const ph = await open(t)
  const g = ph.group('g', { start: 'beginning' })
  await ph.publish(ph.pool, { type: 'x' })
  const { stop } = run(ph)
  const [d] = await g.fetch(1)
  const answered = gate()
  let stopped = false
  const stopping = stop().then(() => (stopped = true))
  void answered.promise.then(() => d!.ack())
  assert.equal(stopped, false)
  answered.open()
  await stopping
  assert.equal(await leases(ph.namespace), 0)
})
