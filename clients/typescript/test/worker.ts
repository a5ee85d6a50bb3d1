// A process of the tests that kill processes or servers: node worker.js ROLE NAMESPACE TABLE. It tells its parent how far
// it is, and ends with it.
import { context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base'
import type { PoolClient } from 'pg'
import { Posthorn } from '../src/index.js'
import { consoleLogger, Trouble } from '../src/log.js'
import { type News, Watch } from '../src/watch.js'
import { databaseUrl } from './world.js'

const [role, namespace, table] = process.argv.slice(2) as [string, string, string]
const ph = await Posthorn.open({ databaseUrl, namespace })
const stop = new AbortController()
process.on('SIGTERM', () => stop.abort())
process.on('disconnect', () => process.exit(1))
if (!process.send) process.stdin.resume().on('end', () => stop.abort()) // a test in Go
let handled = 0
const say = (text: string) => (process.send ? process.send(text) : console.log(text))

const note = (db: { query: any }, event: bigint, text: string) => db.query(`insert into ${table} (event, note) values ($1, $2)`, [event, text])

const roles: Record<string, () => void> = {
  // Notes each event in its transaction.
  effects: () => ph.group('effects', { start: 'beginning', leaseFor: 1000, delays: [1], attempts: 100 }).handleTx('h', '>', async (tx, e) => {
    await note(tx, e.id, 'done')
    say(String(e.id))
  }),
  // Takes an event, and never returns.
  hang: () => ph.group('hang', { start: 'beginning', leaseFor: 1000 }).handle('h', '>', (e) => new Promise(() => say(String(e.id)))),
  // A job of steps. It hangs where its payload says, in its first attempt.
  steps: () => ph.work(['steps'], { leaseFor: 1000 }, async (job) => {
    const hang = async (point: string) => {
      say(point)
      if (job.payload.hang === point && job.attempt === 1) await new Promise(() => undefined)
    }
    await hang('begin')
    const charge = await job.step('charge', async () => {
      await note(ph.pool, job.id, 'charge')
      return { charge: 7 }
    })
    await hang('charged')
    await job.stepTx('book', (tx) => note(tx, job.id, `book ${charge.charge}`))
    await hang('booked')
    job.setResult('shipped')
  }),
  // Processes that become idle after one job, or one event.
  'idle worker': () => ph.work(['idle'], (job) => say(`job ${job.id}`)),
  'idle group': () => ph.group('idle', { start: 'beginning' }).handle('h', '>', (e) => say(`event ${e.id}`)),
  'idle ordered group': () => ph.group('idle', { start: 'beginning', order: 'key' }).handle('h', '>', (e) => say(`event ${e.id}`)),
  'idle transactions': () => ph.group('idle', { start: 'beginning' }).handleTx('h', '>', (_, e) => say(`event ${e.id}`)),
  'idle reader': () => void (async () => {
    for await (const e of ph.read({ follow: true, signal: stop.signal })) say(`event ${e.id}`)
  })(),
  // Says each news that comes. While another process has the turn of the watch, it asks for none.
  follower: () => {
    const watch = new Watch(ph.parts().database, new Trouble(consoleLogger, 'watch'), 3600_000)
    const tell = async (kind: News) => {
      for (const bell = watch.subscribe(kind); await bell.wait(undefined, stop.signal);) say(kind)
    }
    void Promise.all([tell('events'), tell('jobs')]).then(() => watch.close())
  },
  // A job that is completed in its transaction.
  complete: () => ph.work(['complete'], { leaseFor: 1000 }, async (job) => {
    const tx = await ph.pool.connect()
    await tx.query('begin')
    await note(tx, job.id, 'done')
    await job.complete(tx)
    say('completed')
    if (job.attempt === 1) await new Promise(() => undefined)
    await tx.query('commit')
    tx.release()
  }),
  // Publishes again and again, by itself and in a transaction, and says how each ended.
  publish: () => void (async () => {
    const said = (kind: string, error: any) => say(`${kind} ${error.code === 'unconfirmed' ? error.code : error.message}`)
    while (!stop.signal.aborted) {
      await ph.publish(ph.pool, { type: 'x' }).then(() => say('published'), (error) => said('publish', error))
      let tx: PoolClient | undefined
      try {
        tx = await ph.pool.connect()
        await tx.query('begin')
        await ph.publish(tx, { type: 'x' })
        await tx.query('commit')
        tx.release()
      } catch (error) {
        said('commit', error)
        tx?.release(true)
      }
    }
  })(),
  // Publishes at the other side of a move, after it has seen the new one.
  'both sides': () => void (async () => {
    await ph.publish(ph.pool, { type: 'x' })
    const other = await Posthorn.open({ databaseUrl: process.env['POSTHORN_OTHER_URL']! })
    await other.publish(other.pool, { type: 'x' })
    await other.close()
    say('published')
  })().catch((error) => say(error.message)),
  // Publishes at the old primary, sees the new one with another client, and uses the connections that it has.
  'old side': () => void (async () => {
    const publish = () => ph.publish(ph.pool, { type: 'x' })
    await Promise.all([publish(), publish()])
    await (await Posthorn.open({ databaseUrl: process.env['POSTHORN_OTHER_URL']! })).close()
    await publish().then(() => say('published'), (error) => say(error.message))
    await ph.admin.deadLetters('none').then(() => say('asked'), (error) => say(error.message))
  })(),
  // Takes events and jobs. One whose claim is dropped comes again after a second.
  claims: () => {
    ph.group('claims', { start: 'beginning', leaseFor: 1000 }).handle('h', '>', (e) => say(`event ${e.key}`))
    ph.work(['claims'], { leaseFor: 1000 }, (job) => say(`job ${job.title}`))
  },
  // Answers each event that a Go program publishes, within a trace.
  trace: () => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
    trace.setGlobalTracerProvider(new BasicTracerProvider())
    ph.group('answers', { start: 'beginning' }).handleTx('h', 'question', (tx, e) => ph.publish(tx, { type: 'answer', key: e.key }))
  },
  // Notes the key of each event in its transaction.
  keys: () => {
    ph.group('effects', { start: 'beginning', leaseFor: 2000, delays: [1], attempts: 100 }).handleTx('h', '>', async (tx, e) => {
      await note(tx, e.id, e.key)
      handled++
      say(`event ${e.key}`)
    })
    ph.work([], { leaseFor: 2000 }, (job) => say(`job ${job.title}`))
  },
  // Does that, and publishes and enqueues while little waits.
  restart: () => {
    roles['keys']!()
    void (async () => {
      for (let n = 0; !stop.signal.aborted;) {
        try {
          if (5 * n > handled + 50) throw new Error('enough waits')
          await ph.publish(ph.pool, Array.from({ length: 5 }, (_, i) => ({ type: 'x', key: `${n} ${i}`, dedupKey: `${n} ${i}` })))
          await ph.enqueue(ph.pool, { title: `${n}`, uniqueKey: `${n}`, uniqueFor: 3600_000 })
          n++
        } catch { // or the server is down: this may have been published or not
          await new Promise((resolve) => setTimeout(resolve, 20))
        }
      }
    })()
  },
}
roles[role]!()
await ph.run(stop.signal)
await ph.close()
process.exit(0)
