import type { DB } from './database.js'
import { invalid, translate } from './errors.js'
import { checkJobs, type Encoder, jobDocument, type NewJob } from './publish.js'

/** Publishes an event, or enqueues a job, at the times of a calendar. */
export interface Schedule {
  /** Unique in the namespace. */
  name: string
  /** Five fields, minute hour day month weekday, such as 30 8 * * mon-fri; or @hourly, @daily, @weekly, @monthly or @yearly. */
  cron?: string
  /** Instead: an interval in milliseconds, of whole seconds. */
  every?: number
  /** Instead: a single time, to the second. */
  at?: Date
  /** The time zone of `cron`, such as Europe/Berlin. Default: UTC. */
  timeZone?: string
  /** What becomes of times at which no node was running: one event for all, one for each, or none. Default: once. */
  catchUp?: 'once' | 'all' | 'skip'
  /** Of the event, as in {@link Message}. */
  type?: string
  payload?: unknown
  stream?: string
  key?: string
  metadata?: Record<string, unknown>
  /** Is enqueued instead of an event. It has no `runAt`. */
  job?: NewJob
}

/** Creates a schedule, or changes the one with its name, and returns its id. */
export async function schedule(encoder: Encoder, db: DB, s: Schedule): Promise<string> {
  const expression = expressionOf(s)
  let text: string
  let values: unknown[]
  if (s.job) {
    if (s.type || s.payload !== undefined || s.stream || s.key || s.metadata) {
      throw invalid(`schedule ${s.name}: a schedule publishes an event or enqueues a job`, 'Leave out the fields of the event, or job.')
    }
    checkJobs([s.job])
    text = 'select posthorn.schedule_job($1::text, $2::text, $3::text, $4::jsonb, $5::text, $6::text)::text as id'
    values = [jobDocument(encoder, s.job, s.job.metadata ? JSON.stringify(s.job.metadata) : null)]
  } else {
    text = `select posthorn.schedule($1::text, $2::text, $3::text, $7::text, $4::json, $5::text, $6::text, $8::text, $9::text, $10::json)::text as id`
    values = [encoder.payload(s.payload, s.name)]
  }
  values = [encoder.namespace, s.name, expression, ...values, s.timeZone ?? 'UTC', s.catchUp ?? 'once']
  if (!s.job) values.push(s.type ?? '', s.stream ?? 'default', s.key || null, s.metadata ? JSON.stringify(s.metadata) : '{}')
  try {
    return (await db.query({ text, values })).rows[0].id
  } catch (error) {
    throw translate(`schedule ${s.name}`, error)
  }
}

/** Deletes a schedule, and returns whether there was one. */
export async function unschedule(namespace: string, db: DB, name: string): Promise<boolean> {
  try {
    return (await db.query({ text: 'select posthorn.unschedule($1::text, $2::text) as deleted', values: [namespace, name] })).rows[0].deleted
  } catch (error) {
    throw translate('unschedule', error)
  }
}

function expressionOf(s: Schedule): string {
  if (s.every !== undefined && !(s.every >= 1000 && Number.isInteger(s.every / 1000))) {
    throw invalid(`schedule ${s.name}: every is ${s.every} ms`, 'Give whole seconds, in milliseconds.')
  }
  const given = [
    s.cron, s.every === undefined ? undefined : `@every ${s.every / 1000}s`,
    s.at === undefined ? undefined : `@at ${s.at.toISOString().replace(/\.\d+Z$/, 'Z')}`,
  ].filter((expression) => expression !== undefined)
  if (given.length !== 1) throw invalid(`schedule ${s.name}: ${given.length} of cron, every and at are given`, 'Give one of them.')
  return given[0]!
}
