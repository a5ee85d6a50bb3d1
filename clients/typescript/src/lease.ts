import { period } from './database.js'
import type { Event } from './event.js'
import { Hold } from './hold.js'
import type { Route } from './route.js'

/** The report of an event of a lease that is not done, as the function settle reads it. */
export interface Failure {
  event: string
  subscription?: string
  error?: string
  stack?: string
  reason?: string
  permanent?: boolean // it is not retried
  retry_in?: string // instead of the delay of the group
  released?: boolean // it was not attempted: it is handed out again, and no attempt is counted
}

/** Gives back an event that was not handled. */
export function released(e: Event, subscription?: string): Failure {
  return { event: String(e.id), subscription, released: true }
}

/** The part of a lease that is done and not settled yet. */
export interface Settlement {
  head: number
  failures: Failure[]
}

/** The outcome of a failure, by its index: it is due again, or a dead letter, or neither if its subscription was removed. */
export interface Fate {
  failure: number
  due_at?: string
  dead?: boolean
}

/** The id up to which a lease is settled with an index. */
export function upTo(lease: { events: Event[] }, end: number): bigint {
  return end > 0 ? lease.events[end - 1]!.id : 0n
}

/** A call of a function of the schema: its signature, its arguments, and the columns of its answer. */
export type SqlCall = [signature: string, values: unknown[], columns: string]

/** Settles a lease with its failures, or a part of it up to an event. The answer about failures is a {@link Fate} in each row. */
export function settlement(lease: { id: string; attempt: number }, failures: Failure[], upTo?: bigint, leaseFor = 0): SqlCall {
  const fence = [lease.id, lease.attempt]
  const part = upTo === undefined ? [] : [String(upTo), period(leaseFor)]
  if (failures.length === 0) {
    return part.length > 0 ? ['settle_until(bigint, int, bigint, interval)', [...fence, ...part], '*'] : ['settle(bigint, int)', fence, '*']
  }
  const [upto = null, length = null] = part
  return ['settle_failed(bigint, int, jsonb, bigint, interval)', [...fence, JSON.stringify(failures), upto, length],
    "json_build_object('failure', failure - 1, 'due_at', due_at, 'dead', dead)::text as fate"]
}

/** A batch of events that this process may handle until a deadline. */
export class Lease extends Hold {
  routes: Route[] = []
  /** Whether its events are one task, and run one after another. */
  isTask = false
  /** The first event that is not begun. */
  next = 0
  /** Events that are in a handler. */
  running = 0
  began = 0
  lastStep = Date.now()
  heartbeat: NodeJS.Timeout | undefined

  /** Events at the head that are settled. */
  head = 0
  private readonly done: boolean[]
  private failures: Failure[] = []

  constructor(readonly id: string, readonly attempt: number, readonly events: Event[], until: number) {
    super(until)
    this.done = new Array<boolean>(events.length).fill(false)
  }

  /** Whether all events are begun or given back, and no handler has one. */
  get isFinished(): boolean {
    return this.next === this.events.length && this.running === 0
  }

  get hasFailures(): boolean {
    return this.failures.length > 0
  }

  /** Marks events as done, except for the failures. Returns whether these are the first failures that are not settled. */
  finish(start: number, end: number, failures: Failure[]): boolean {
    for (let i = start; i < end; i++) this.done[i] = true
    this.lastStep = Date.now()
    const first = this.failures.length === 0 && failures.length > 0
    if (failures.length > 0) this.failures.push(...failures)
    return first
  }

  /**
   * Gives back the events from an index on, without a failure. They count as done: a heartbeat that makes retries of them
   * must also take them out of the lease. Otherwise they would be handled twice if the process dies before the lease ends.
   */
  leave(from: number): void {
    for (let i = from; i < this.events.length; i++) {
      this.done[i] = true
      this.failures.push(released(this.events[i]!))
    }
    this.next = this.events.length
  }

  unsettled(): Settlement {
    let head = this.head
    while (head < this.done.length && this.done[head]) head++
    return { head, failures: this.failures.slice() }
  }

  /** Notes that the database has a settlement. */
  settled(s: Settlement): void {
    this.head = s.head
    this.failures = this.failures.slice(s.failures.length)
  }
}
