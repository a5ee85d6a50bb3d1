import { type DB, period } from './database.js'
import { invalid, messageOf, translate } from './errors.js'

/** JSON that is published as it is. */
export class RawJSON {
  constructor(readonly text: string) {}
}

/** Makes a payload of JSON, which is published as it is: with all digits of its numbers. */
export function raw(text: string): RawJSON {
  return new RawJSON(text)
}

/** An event to be published. Only its type is required. */
export interface Message {
  /** The kind of event, like order.placed. */
  type: string
  /** Any value that {@link Options.stringify} writes as JSON, or {@link raw}. Default: {}. */
  payload?: unknown
  /** Default: default. */
  stream?: string
  /** The subject of the event, such as the id of an order. Groups that are ordered by key keep the events of a key in order. */
  key?: string
  /** Labels that subscriptions and readers can filter by. */
  tags?: string[]
  /** The client adds the trace context, and the node's id as producer; a producer of null leaves it out. */
  metadata?: Record<string, unknown>
  /** When the event enters the log. Default: at once. */
  deliverAt?: Date
  /** Messages with the same key within one day become one event. */
  dedupKey?: string
}

/** A job to be enqueued: work for exactly one worker. Only its title is required. */
export interface NewJob {
  /** Describes the work in a few words. */
  title: string
  /** A longer text for people. */
  description?: string
  /** A worker takes jobs that have one of its tags. A job without tags is for workers without tags. */
  tags?: string[]
  /** Any value that {@link Options.stringify} writes as JSON, or {@link raw}. Default: {}. */
  payload?: unknown
  /** Jobs with a higher priority are taken first. Default: 0. */
  priority?: number
  /** The earliest time of the first attempt. Default: at once. */
  runAt?: Date
  /** The number of failures after which the job has failed. With 0, the first failure is the last one. Default: 3. */
  maxRetries?: number
  /** Milliseconds before further attempts; the last delay repeats. Default: 5 minutes. */
  retryDelays?: number[]
  /** While a job with the same key is pending, or for `uniqueFor` milliseconds, no other job is enqueued. */
  uniqueKey?: string
  uniqueFor?: number
  /** Jobs of the same priority take turns by their keys; a key has as many turns as its weight says. */
  fairKey?: string
  weight?: number
  metadata?: Record<string, unknown>
  /** The ids of jobs that have to be completed before. */
  after?: bigint[]
}

const messageFields = ['type', 'payload', 'stream', 'key', 'tags', 'metadata', 'deliverAt', 'dedupKey']
const jobFields = ['title', 'description', 'tags', 'payload', 'priority', 'runAt', 'maxRetries', 'retryDelays', 'uniqueKey', 'uniqueFor',
  'fairKey', 'weight', 'metadata', 'after']

/** Refuses in JavaScript what the types refuse in TypeScript: an unknown field would be dropped, and a text is no list of tags. */
function check(what: string, things: object[], fields: string[]): void {
  for (let i = 0; i < things.length; i++) {
    const thing = things[i] as Record<string, unknown>
    for (const name of Object.keys(thing)) {
      if (!fields.includes(name) && thing[name] !== undefined) {
        throw invalid(`${what} ${i} has an unknown field "${name}"`, `Fields are ${fields.slice(0, -1).join(', ')} and ${fields.at(-1)}.`)
      }
    }
    checkTags(`${what} ${i}`, thing.tags)
  }
}

export const checkJobs = (jobs: NewJob[]): void => check('job', jobs, jobFields)

/** Refuses tags that are no list of texts. */
export function checkTags(what: string, tags: unknown): void {
  if (tags === undefined || tags === null) return
  if (!Array.isArray(tags) || tags.some((tag) => typeof tag !== 'string')) {
    throw invalid(`${what}: tags must be an array of texts`, "Write it like tags: ['mail'].")
  }
}

/** Encodes what a client publishes. */
export interface Encoder {
  namespace: string
  payload(value: unknown, what: string): string
  /** The metadata as JSON. */
  metadata(given: Record<string, unknown> | undefined): string | null
}

export function encodePayload(stringify: (value: unknown) => string, value: unknown, what: string): string {
  if (value === undefined) return '{}'
  if (value instanceof RawJSON) return value.text
  let text: string | undefined
  try {
    text = stringify(value)
  } catch (error) {
    throw invalid(`payload of ${what}: ${messageOf(error)}`, 'Give a value that can be written as JSON. For numbers beyond 2^53 use raw, or the option stringify.')
  }
  if (text === undefined) throw invalid(`payload of ${what} is no JSON`, 'Give a value that can be written as JSON.')
  return text
}

/** Writes an object whose values are JSON already. Values that are undefined are left out. */
function objectOf(values: Record<string, string | undefined>): string {
  const parts = Object.entries(values).filter(([, value]) => value !== undefined)
  return `{${parts.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`
}

const json = (value: unknown): string | undefined => (value === undefined ? undefined : JSON.stringify(value))

/** An array for a parameter; null if it has no value. */
function column<T, V>(things: T[], value: (thing: T) => V | undefined): (V | null)[] | null {
  const values = things.map((thing) => value(thing) ?? null)
  return values.some((v) => v !== null) ? values : null
}

/** Writes texts in the form in which Postgres reads an array. */
function arrayLiteral(texts: string[] | undefined): string | undefined {
  if (!texts || texts.length === 0) return undefined
  return `{${texts.map((text) => `"${text.replace(/["\\]/g, '\\$&')}"`).join(',')}}`
}

export async function ids(verb: string, db: DB, text: string, values: unknown[]): Promise<bigint[]> {
  try {
    return (await db.query({ text, values })).rows.map((row) => BigInt(row.id))
  } catch (error) {
    throw translate(verb, error)
  }
}

export async function publish(encoder: Encoder, db: DB, messages: Message[]): Promise<bigint[]> {
  check('message', messages, messageFields)
  const [m] = messages
  if (!m) return []
  const payload = (message: Message) => encoder.payload(message.payload, message.type)
  if (messages.length === 1) {
    return ids('publish', db, `
      select posthorn.publish($1::text, $2::text, $3::json, $4::text, $5::text, $6::text[], $7::json, $8::timestamptz, $9::text)::text as id`,
      [encoder.namespace, m.type, payload(m), m.stream ?? 'default', m.key || null, m.tags?.length ? m.tags : null, encoder.metadata(m.metadata),
        m.deliverAt?.toISOString() ?? null, m.dedupKey || null])
  }
  if (messages.some((message) => message.deliverAt || message.dedupKey)) {
    const document = messages.map((message) => objectOf({
      type: json(message.type), payload: payload(message), stream: json(message.stream), key: json(message.key || undefined),
      tags: json(message.tags), metadata: encoder.metadata(message.metadata) ?? undefined,
      deliver_at: json(message.deliverAt), dedup_key: json(message.dedupKey || undefined),
    }))
    return ids('publish', db, 'select publish_many::text as id from posthorn.publish_many($1::text, $2::jsonb)',
      [encoder.namespace, `[${document.join(',')}]`])
  }
  return ids('publish', db, `
    select publish_batch::text as id
    from posthorn.publish_batch($1::text, $2::text[], $3::json[], $4::text[], $5::text[], $6::text[], $7::json[])`,
    [encoder.namespace, ...columnsOf(encoder, messages)])
}

function columnsOf(encoder: Encoder, messages: Message[]): unknown[] {
  const named = messages.some((m) => m.stream && m.stream !== 'default')
  return [
    messages.map((m) => m.type), messages.map((m) => encoder.payload(m.payload, m.type)),
    named ? messages.map((m) => m.stream ?? 'default') : null, column(messages, (m) => m.key || undefined),
    column(messages, (m) => arrayLiteral(m.tags)), column(messages, (m) => encoder.metadata(m.metadata) ?? undefined),
  ]
}

/** Publishes messages to one subscription of a group. */
export async function publishTo(encoder: Encoder, db: DB, group: string, subscription: string, messages: Message[]): Promise<bigint[]> {
  check('message', messages, messageFields)
  const deduplicated = messages.find((m) => m.dedupKey)
  if (deduplicated) {
    throw invalid(`message ${deduplicated.type} is for one subscription and has a dedupKey`,
      'Leave the dedupKey out: such messages are never compared.')
  }
  if (messages.length === 0) return []
  return ids('publish', db, `
    select posthorn.publish_to($1::text, $2::text, $3::text, m.type, m.payload, coalesce(m.stream, 'default'), m.key,
      m.tags::text[], m.metadata, m.deliver_at)::text as id
    from unnest($4::text[], $5::json[], $6::text[], $7::text[], $8::text[], $9::json[], $10::timestamptz[])
      with ordinality as m (type, payload, stream, key, tags, metadata, deliver_at, ord)
    order by m.ord`,
    [encoder.namespace, group, subscription, ...columnsOf(encoder, messages), column(messages, (m) => m.deliverAt?.toISOString())])
}

/** A job as the functions of the schema read it. */
export function jobDocument(encoder: Encoder, job: NewJob, metadata: string | null): string {
  return objectOf({
    title: json(job.title), description: json(job.description || undefined), tags: json(job.tags ?? []),
    payload: encoder.payload(job.payload, job.title), priority: json(job.priority), run_at: json(job.runAt),
    max_retries: json(job.maxRetries), retry_delays: json(job.retryDelays?.length ? job.retryDelays.map(period) : undefined),
    unique_key: json(job.uniqueKey || undefined), unique_for: json(job.uniqueFor === undefined ? undefined : period(job.uniqueFor)),
    metadata: metadata ?? undefined, fair_key: json(job.fairKey || undefined), weight: json(job.weight),
    after: job.after?.length ? `[${job.after.join(',')}]` : undefined,
  })
}

export async function enqueue(encoder: Encoder, db: DB, jobs: NewJob[]): Promise<bigint[]> {
  checkJobs(jobs)
  if (jobs.length === 0) return []
  if (jobs.some((j) => j.description || j.uniqueKey || j.uniqueFor !== undefined || j.retryDelays?.length || j.after?.length)) {
    return ids('enqueue', db, 'select enqueue_many::text as id from posthorn.enqueue_many($1::text, $2::jsonb)',
      [encoder.namespace, `[${jobs.map((job) => jobDocument(encoder, job, encoder.metadata(job.metadata))).join(',')}]`])
  }
  return ids('enqueue', db, `
    select enqueue_batch::text as id
    from posthorn.enqueue_batch($1::text, $2::text[], $3::json[], $4::text[], $5::int[], $6::timestamptz[], $7::int[], $8::json[],
      $9::text[], $10::float8[])`,
    [encoder.namespace, jobs.map((j) => j.title), jobs.map((j) => encoder.payload(j.payload, j.title)),
      jobs.map((j) => arrayLiteral(j.tags) ?? '{}'), column(jobs, (j) => j.priority), column(jobs, (j) => j.runAt?.toISOString()),
      column(jobs, (j) => j.maxRetries), column(jobs, (j) => encoder.metadata(j.metadata) ?? undefined),
      column(jobs, (j) => j.fairKey || undefined), column(jobs, (j) => j.weight)])
}
