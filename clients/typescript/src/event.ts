import type { Row } from './database.js'
import { Permanent, PosthornError, messageOf } from './errors.js'

/** Where an imported event was published first. */
export interface Origin {
  log: string
  namespace: string
  stream: string
  id: bigint
  publishedAt: Date
}

/** Reads payloads. */
export type Parse = (text: string) => any

/** The columns of an event, in the order of the constructor of {@link Event}. */
export const eventColumns = `event_id, stream, type, key, case when cardinality(tags) > 0 then to_json(tags) end,
  payload, metadata, extract(epoch from published_at)`

/** An event of the log. Payload and metadata are decoded when they are first read. */
export class Event {
  readonly id: bigint
  readonly stream: string
  readonly type: string
  /** The subject of the event; empty if it has none. */
  readonly key: string
  /** The payload as JSON, as it was published. */
  readonly payloadText: string
  /** The metadata as JSON. */
  readonly metadataText: string
  /** The number of the group's attempt at the event, from 1. It is 0 for an event that was read without a group. */
  readonly delivery: number

  private readonly parse: Parse
  private readonly tagsText: string | null
  private readonly seconds: string
  private readonly subscriptionsText: string | null
  private parsed: { payload: unknown } | undefined

  /** @internal */
  constructor(row: Row, at: number, parse: Parse) {
    this.id = BigInt(row[at]!)
    this.stream = row[at + 1]!
    this.type = row[at + 2]!
    this.key = row[at + 3] ?? ''
    this.tagsText = row[at + 4]!
    this.payloadText = row[at + 5]!
    this.metadataText = row[at + 6] ?? '{}'
    this.seconds = row[at + 7]!
    this.delivery = Number(row[at + 8] ?? 0)
    this.subscriptionsText = row[at + 9] ?? null
    this.parse = parse
  }

  /** The payload, read by {@link Options.parse}. One that cannot be read is a permanent error. */
  get payload(): any {
    this.parsed ??= { payload: parsePayload(this.payloadText, this.parse, this.type) }
    return this.parsed.payload
  }

  get metadata(): Record<string, any> {
    return JSON.parse(this.metadataText)
  }

  get tags(): string[] {
    return this.tagsText === null ? [] : JSON.parse(this.tagsText)
  }

  get publishedAt(): Date {
    return new Date(Number(this.seconds) * 1000)
  }

  /**
   * The names of the subscriptions that match the event, in a group with subscriptions. A retry names only the handlers
   * or subscriptions that have failed.
   */
  get subscriptions(): string[] {
    return this.subscriptionsText === null ? [] : JSON.parse(this.subscriptionsText)
  }

  /** Where an imported event was published first; undefined for one that was published in this log. */
  get origin(): Origin | undefined {
    const o = this.metadata['posthorn_origin']
    return o && { ...o, id: BigInt(o.id), publishedAt: new Date(o.published_at) }
  }

  /** The event as it is over HTTP: ids are strings, because numbers beyond 2^53 would be damaged. */
  toJSON(): Record<string, unknown> {
    return {
      id: String(this.id), stream: this.stream, type: this.type, key: this.key || undefined, tags: this.tags, payload: this.payload,
      metadata: this.metadata, published_at: this.publishedAt, delivery: this.delivery || undefined,
      subscriptions: this.subscriptions.length > 0 ? this.subscriptions : undefined,
    }
  }
}

export function parsePayload(text: string | null, parse: Parse, what: string): any {
  if (text === null || text.startsWith('{"posthorn_sealed"')) {
    throw new PosthornError('refused', `payload of ${what} is sealed, and this client has no keys`,
      'Handle events of confidential streams with the Go client, or over HTTP with posthorn serve --seal-key.')
  }
  try {
    return parse(text)
  } catch (error) {
    throw new Permanent(new Error(`payload of ${what} cannot be read: ${messageOf(error)}`, { cause: error }))
  }
}
