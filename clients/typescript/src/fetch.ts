import { claim, type Consumption, failureOf } from './consume.js'
import { leaseTime, period } from './database.js'
import { isFinal, isLeaseLost, Permanent, PosthornError } from './errors.js'
import type { Event } from './event.js'
import { Hold } from './hold.js'
import { type Failure, type Lease, released, settlement, upTo } from './lease.js'
import type { Trouble } from './log.js'
import { lastWords, pause, sharedController, Sizer, troubleWait, Turn, unlessAborted } from './wait.js'

export interface FetchOptions {
  /** Ends the wait. */
  signal?: AbortSignal
}

const saveInterval = 1000 // between two saves of answers: a crash repeats about as much work

/**
 * A fetched event. Answer it once, with ack, nack or term, within the `leaseFor` of its group. The events of one fetch are
 * one lease, which is settled when all of them are answered; an earlier answer is saved after about a second if all
 * events before it are answered too. A PosthornError with the code lease_lost means that another worker has the events.
 */
export class Delivery {
  /** @internal */
  constructor(readonly event: Event, private readonly lease: FetchedLease, private readonly index: number) {}

  /** Answers that the event is done. */
  ack(): Promise<void> {
    return this.lease.answer(this.index, [])
  }

  /**
   * Answers that the event has failed. It is retried after the next delay of the group, or as {@link RetryAfter} says;
   * with {@link Permanent}, or after the last attempt, it becomes a dead letter.
   */
  nack(error: unknown = 'failed, no cause given'): Promise<void> {
    const names = this.event.subscriptions
    return this.lease.answer(this.index, (names.length > 0 ? names : [undefined]).map((name) => failureOf(this.event, name, error)))
  }

  /** Answers that the event has failed and that another attempt would not succeed. */
  term(error: unknown = 'terminated, no cause given'): Promise<void> {
    return this.nack(new Permanent(error))
  }

  /** Sets the deadline of the event, and of all events of the same fetch, to so many milliseconds from now. */
  extend(milliseconds: number): Promise<void> {
    return this.lease.extend(this.index, milliseconds)
  }

  /** Whether it can still be answered. @internal */
  get isOpen(): boolean {
    return !this.lease.over && !this.lease.isAnswered(this.index)
  }

  /** Extends the lease if necessary. Returns whether this process still has it. @internal */
  keep(): Promise<boolean> {
    return this.lease.keep()
  }

  /** Gives back all events of the fetch that have no answer. @internal */
  giveBack(): Promise<void> {
    return this.lease.giveBack()
  }
}

/** The leases of a group whose events a program has fetched. */
export class FetchedLeases {
  private readonly open = new Set<FetchedLease>()
  private readonly turn = new Turn()
  private readonly closing = sharedController()
  private readonly settled = new Set<() => void>()

  constructor(readonly c: Consumption) {}

  fetch(n: number, options: FetchOptions): Promise<Delivery[]> {
    // One call at a time asks the database, which lets only one call take events anyway.
    return unlessAborted(this.turn.take(() => this.await(n, options.signal)), options.signal)
  }

  /** Returns when all leases are settled, or the signal comes. */
  async drained(work: AbortSignal): Promise<void> {
    while (this.open.size > 0 && !work.aborted) await pause(20, work)
  }

  /** Gives back what has no answer. */
  async giveBack(): Promise<void> {
    await Promise.all([...this.open].map((lease) => lease.giveBack()))
  }

  async close(): Promise<void> {
    this.closing.abort(new PosthornError('closed', 'the client is closed'))
    await this.giveBack()
  }

  private async await(n: number, signal?: AbortSignal): Promise<Delivery[]> {
    const { closing } = this
    const news = this.c.watch.subscribe('events')
    const ring = () => news.ring()
    this.settled.add(ring)
    signal?.addEventListener('abort', ring)
    try {
      for (;;) {
        signal?.throwIfAborted()
        closing.signal.throwIfAborted()
        const lease = await claim(this.c, n)
        if (!lease) {
          await this.c.watch.await(news, this.c.idlePoll, closing.signal)
          continue
        }
        const fetched = new FetchedLease(this, lease)
        this.open.add(fetched)
        if (signal?.aborted || closing.signal.aborted) {
          await fetched.giveBack()
          continue
        }
        void this.c.telemetry.about({ operation: 'fetch', group: this.c.group, batch: true }, lease.events, async () => undefined)
        return lease.events.map((e, i) => new Delivery(e, fetched, i))
      }
    } finally {
      signal?.removeEventListener('abort', ring)
      this.settled.delete(ring)
      this.c.watch.unsubscribe(news)
    }
  }

  /** @internal */
  ended(lease: FetchedLease): void {
    this.open.delete(lease)
    for (const ring of this.settled) ring()
  }
}

/** A lease whose events were fetched, with the answers of the program. */
class FetchedLease extends Hold {
  private readonly answers: ('answered' | 'given back' | undefined)[]
  private missing: number
  private failures: Failure[] = []
  private savedHead = 0
  private expiresAt: number
  private timer: NodeJS.Timeout | undefined

  constructor(private readonly group: FetchedLeases, private readonly lease: Lease) {
    super(Date.now() + group.c.leaseFor)
    this.answers = new Array(lease.events.length).fill(undefined)
    this.missing = lease.events.length
    this.expiresAt = Date.now() + group.c.leaseFor
  }

  isAnswered(i: number): boolean {
    return this.answers[i] !== undefined
  }

  async answer(i: number, failures: Failure[]): Promise<void> {
    this.checkOpen(i)
    this.answers[i] = 'answered'
    this.missing--
    this.failures.push(...failures)
    if (this.group.c.blocks && failures.length > 0 && !failures[0]!.permanent) this.giveBackFrom(i + 1)
    if (this.missing > 0) {
      this.timer ??= setTimeout(() => {
        this.timer = undefined
        this.save().catch((error: unknown) => {
          if (!isLeaseLost(error)) this.group.c.log.warn('cannot save answers yet', { group: this.group.c.group, error })
        })
      }, saveInterval)
      return
    }
    try {
      await this.save()
    } catch (error) {
      if (!this.over && i >= this.savedHead) { // the program can repeat it
        this.answers[i] = undefined
        this.missing++
        this.failures = this.failures.filter((f) => !failures.includes(f))
      }
      throw error
    }
  }

  async keep(): Promise<boolean> {
    const { leaseFor, log, group } = this.group.c
    try {
      if (!this.over && this.expiresAt - Date.now() < leaseFor / 2) await this.extendLease(leaseFor)
    } catch (error) {
      if (!isLeaseLost(error)) log.warn('cannot extend a lease yet', { group, error })
    }
    if (this.over && this.missing > 0) log.warn('lease lost, its events go to another worker', { group })
    return !this.over
  }

  extend(i: number, milliseconds: number): Promise<void> {
    this.checkOpen(i)
    return this.extendLease(milliseconds)
  }

  async giveBack(): Promise<void> {
    this.giveBackFrom(0)
    await this.save(lastWords).catch((error: unknown) => {
      if (!isLeaseLost(error)) this.group.c.log.warn('cannot give events back; their lease expires', { group: this.group.c.group, error })
    })
    this.end()
  }

  private checkOpen(i: number): void {
    const { id } = this.lease.events[i]!
    if (this.isLost) throw this.signal.reason
    if (this.answers[i] === 'answered') throw new PosthornError('conflict', `event ${id} is answered already`)
    if (this.answers[i] === 'given back') throw new PosthornError('lease_lost', `event ${id} was given back`)
  }

  /** In a blocking group, the events after one that is retried are handed out again, after it. */
  private giveBackFrom(from: number): void {
    for (let i = from; i < this.answers.length; i++) {
      if (this.answers[i]) continue
      this.answers[i] = 'given back'
      this.missing--
      this.failures.push(released(this.lease.events[i]!))
    }
  }

  private async save(limit = leaseTime(this.group.c.leaseFor)): Promise<void> {
    const { c } = this.group
    const { events } = this.lease
    try {
      await this.settle(async () => {
        let head = this.savedHead
        while (this.answers[head] === 'answered') head++
        const complete = this.missing === 0
        const failures = this.failures.slice()
        if (!complete && head === this.savedHead && failures.length === 0) return false
        // A period that is shorter than the present one leaves the deadline: only the program extends its leases.
        const [signature, values] = settlement(this.lease, failures, complete ? undefined : upTo(this.lease, head), 1)
        await c.telemetry.about({ operation: 'settle', group: c.group, batch: true }, events.slice(this.savedHead, complete ? undefined : head),
          () => c.database.call(signature, values, limit))
        this.savedHead = head
        this.failures = this.failures.slice(failures.length)
        return complete
      })
    } catch (error) {
      if (isLeaseLost(error)) this.end()
      throw error
    }
    if (this.over) this.end()
  }

  private async extendLease(milliseconds: number): Promise<void> {
    const { c } = this.group
    try {
      await this.settle(async () => {
        const asked = Date.now()
        await c.database.call('extend(bigint, int, interval)',
          [this.lease.id, this.lease.attempt, period(milliseconds)], leaseTime(c.leaseFor))
        this.expiresAt = asked + milliseconds
        this.extended(this.expiresAt)
        return false
      })
    } catch (error) {
      if (isLeaseLost(error)) this.end()
      throw error
    }
  }

  private end(): void {
    clearTimeout(this.timer)
    this.group.ended(this)
  }
}

/** Yields deliveries one by one until the signal comes. After a temporary error it goes on. */
export async function* deliveries(
  fetch: (n: number) => Promise<Delivery[]>, batchSize: number, trouble: Trouble, signal?: AbortSignal,
): AsyncIterableIterator<Delivery> {
  const sizer = new Sizer(batchSize)
  let open: Delivery[] = [] // that the loop has seen, or would see
  try {
    while (!signal?.aborted) {
      let batch: Delivery[]
      try {
        batch = await fetch(sizer.size)
        trouble.over()
      } catch (error) {
        if (signal?.aborted) return
        if (isFinal(error)) throw error
        trouble.report(error)
        await pause(troubleWait, signal)
        continue
      }
      open = [...open.filter((d) => d.isOpen), ...batch]
      const began = performance.now()
      for (const d of batch) {
        if (!(await d.keep())) break
        if (signal?.aborted) return
        if (d.isOpen) yield d
      }
      sizer.took(batch.length, performance.now() - began)
    }
  } finally {
    for (const d of open) if (d.isOpen) await d.giveBack()
  }
}
