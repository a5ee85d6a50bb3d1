// The program with which this client is judged: it obeys the commands of docs/clients.md, and reports.
import { setTimeout as sleep } from 'node:timers/promises'
import { createInterface } from 'node:readline'
import { context, ROOT_CONTEXT, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base'
import type pg from 'pg'
import { type Event, type Job, Permanent, Posthorn, raw, RetryAfter, Snooze } from '../src/index.js'

interface Command {
  do: string
  database: string
  traced?: boolean
  group: string
  tag: string
  in_tx?: boolean
  order?: 'none' | 'key'
  lease_ms?: number
  concurrency?: number
  attempts?: number
  actions?: Action[]
  messages: { type: string; key?: string; tag: string; payload: string }[]
  ending?: 'commit' | 'rollback'
  traceparent?: string
}

interface Action {
  do: string
  name: string
  type: string
  key: string
  ms: number
  times?: number
  one_in?: number
}

/** One call of a handler. */
interface Call {
  handler: string
  id: bigint
  key: string
  attempt: number
  payload: string
  metadata: unknown
  tx?: pg.ClientBase
  job?: Job
}

let ph: Posthorn
let running: Promise<void>
let open: (() => void)[] = [] // the holds
const stop = new AbortController()
const calls = new Map<string, number>()

const say = (report: object) => process.stdout.write(JSON.stringify(report) + '\n')
const text = (error: unknown) => (error instanceof Error ? error.message : String(error))

const effect = (db: pg.Pool | pg.ClientBase, handler: string, id: bigint, key = '', name = '') =>
  db.query('insert into effects (handler, id, key, name) values ($1, $2, $3, $4)', [handler, id, key, name])

async function obey(c: Command): Promise<string[] | undefined> {
  switch (c.do) {
    case 'open':
      if (c.traced) {
        context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
        trace.setGlobalTracerProvider(new BasicTracerProvider())
      }
      ph = await Posthorn.open({ databaseUrl: c.database })
      return undefined
    case 'handle': return handle(c)
    case 'work':
      ph.work([c.tag], { leaseFor: c.lease_ms, concurrency: c.concurrency }, (job) =>
        called({ handler: c.tag, id: job.id, key: job.title, attempt: job.attempt, payload: job.payloadText, metadata: job.metadata, job }, c.actions))
      return undefined
    case 'run':
      running = ph.run(stop.signal)
      running.catch(() => undefined)
      return undefined
    case 'publish':
    case 'enqueue':
      return context.with(remote(c.traceparent), () => send(c))
    case 'go':
      open.splice(0).forEach((pass) => pass())
      return undefined
    case 'stop':
      stop.abort()
      void end()
      return undefined
    default: throw new Error(`unknown command ${c.do}`)
  }
}

function remote(traceparent: string | undefined) {
  const [, traceId, spanId] = traceparent?.split('-') ?? []
  return traceId && spanId ? trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: 1, isRemote: true }) : ROOT_CONTEXT
}

function handle(c: Command): undefined {
  const group = ph.group(c.group, {
    start: 'beginning', order: c.order, leaseFor: c.lease_ms, concurrency: c.concurrency, attempts: c.attempts, delays: [1],
  })
  const call = (event: Event, tx?: pg.ClientBase) =>
    called({ handler: c.group, id: event.id, key: event.key, attempt: event.delivery, payload: event.payloadText, metadata: event.metadata, tx }, c.actions)
  if (c.in_tx) group.handleTx('judged', 'judged.*', (tx, event) => call(event, tx))
  else group.handle('judged', 'judged.*', (event) => call(event))
}

/** Publishes events or enqueues jobs, in a transaction with an effect if it has an ending. */
async function send(c: Command): Promise<string[]> {
  const db = c.ending ? await ph.pool.connect() : undefined
  let isBroken = true
  try {
    await db?.query('begin')
    const ids = c.do === 'publish'
      ? await ph.publish(db ?? ph.pool, c.messages.map(({ type, key, payload }) => ({ type, key, payload: raw(payload) })))
      : await ph.enqueue(db ?? ph.pool, c.messages.map((m) => ({ title: m.type, tags: [m.tag], payload: raw(m.payload), maxRetries: 100, retryDelays: [1] })))
    if (db) for (const [i, id] of ids.entries()) await effect(db, c.do, id, c.messages[i]!.key)
    await db?.query(c.ending!)
    isBroken = false
    return ids.map(String)
  } finally {
    db?.release(isBroken)
  }
}

async function end(): Promise<void> {
  const error = await running.then(() => undefined, text)
  await ph.close()
  say({ at: 'stopped', error })
  process.exit(0)
}

async function called(call: Call, actions: Action[] = []): Promise<void> {
  const times = (calls.get(`${call.handler} ${call.id}`) ?? 0) + 1
  calls.set(`${call.handler} ${call.id}`, times)
  const about = { handler: call.handler, id: String(call.id), key: call.key, attempt: call.attempt }
  say({ at: 'begin', ...about, payload: call.payload, metadata: JSON.stringify(call.metadata), trace: trace.getActiveSpan()?.spanContext().traceId })
  const values: Record<string, string> = {}
  let own: pg.PoolClient | undefined // the transaction of a job
  let isCommitted = false
  const act = async (a: Action): Promise<void> => {
    const job = call.job!
    const value = `attempt ${call.attempt}`
    const note = async (db: pg.Pool | pg.ClientBase, of?: unknown) => {
      await effect(db, call.handler, call.id, call.key, a.name)
      return of as string
    }
    switch (a.do) {
      case 'effect': return void await note(own ?? call.tx ?? ph.pool)
      case 'hold': return new Promise((resolve) => {
        open.push(resolve)
        say({ at: 'hold', ...about })
      })
      case 'linger': return sleep(Math.random() * a.ms)
      case 'error': throw new Error('told to fail')
      case 'permanent': throw new Permanent(new Error('told to fail for good'))
      case 'retry': throw new RetryAfter(a.ms, new Error('told to fail'))
      case 'snooze': throw new Snooze(a.ms)
      case 'begin':
        own = await ph.pool.connect()
        own.on('error', () => undefined) // its next statement fails
        return void await own.query('begin')
      case 'complete': return job.complete(own!)
      case 'commit':
        await own!.query('commit')
        isCommitted = true
        return
      case 'step': return void (values[a.name] = await job.step(a.name, () => note(ph.pool, value)))
      case 'step_tx': return void (values[a.name] = await job.stepTx(a.name, (tx) => note(tx, value)))
      case 'sleep': return job.sleep(a.name, a.ms)
      case 'await': return void (values[a.name] = String((await job.await(a.name, a.type, a.key, a.ms)).id))
      case 'result': return job.setResult(values)
      default: throw new Error(`unknown action ${a.do}`)
    }
  }
  try {
    for (const a of actions) {
      if ((a.times && times > a.times) || (a.one_in && Math.random() * a.one_in >= 1)) continue
      await act(a)
    }
    say({ at: 'end', ...about })
  } catch (error) {
    say({ at: 'end', ...about, error: text(error) })
    throw error
  } finally {
    own?.release(!isCommitted) // an open transaction ends with its connection
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await obey(JSON.parse(line)).then((ids) => ({ ids }), (error: unknown) => ({ error: text(error) }))
  say({ at: 'answer', ...answer })
}
process.exit(1) // the suite has ended
