import pg from 'pg'
import { type Database, isDeadline, leaseTime, period, retry, statementTime, storable } from './database.js'
import { EventErrors, isCollision, isLeaseLost, isOutage, messageOf, Permanent, PosthornError, RetryAfter, Snooze, sqlState } from './errors.js'
import { Event, eventColumns, type Parse } from './event.js'
import { Call, isTimeout, stopping } from './hold.js'
import { type Failure, type Fate, Lease, released, settlement, type SqlCall, upTo } from './lease.js'
import { Failures, type Logger, Trouble } from './log.js'
import type { RegisteredHandler, Route, Routes } from './route.js'
import type { Telemetry } from './telemetry.js'
import { swallowed, type Transaction, type Transactions } from './transaction.js'
import { Bell, Breather, lastWords, pause, Sizer, troubleWait } from './wait.js'
import type { Watch } from './watch.js'

/** Describes a group, and how this process consumes it. */
export interface Consumption {
  database: Database
  transactions: Transactions
  watch: Watch
  telemetry: Telemetry
  log: Logger
  parse: Parse
  namespace: string
  group: string
  node: string
  routes: Routes
  askOthers(): Promise<void> // updates routes with the handlers of other nodes
  isFiltered(): boolean // whether the group has subscriptions
  isOrdered(): boolean // whether the events of a lease run one after another
  blocks: boolean // in ordered groups: a failure ends the lease
  deadLetterUnhandled: boolean
  concurrency: number
  batchSize: number
  leaseFor: number
  timeout: number // of one call of a handler; 0: none
  idlePoll: number
}

const failureWait = 50 // how long a failure waits to be settled together with others
const handOverIn = '1 second' // the delay of an event for another node
const keepTransaction = 20 // how long one connection is kept for the transactions of a lease
const tries = 5 // of a transaction that collides with others
const clipped = 16 << 10
const lastCondition = 6000 // the time of the condition that stop_slow_conditions begins last

/** Takes a lease of a group with its events; undefined if there are none. */
export async function claim(
  c: Pick<Consumption, 'database' | 'namespace' | 'group' | 'node' | 'leaseFor' | 'parse'>, maxEvents: number,
): Promise<Lease | undefined> {
  const until = Date.now() + c.leaseFor
  const rows = await c.database.claim('claim(text, text, text, int, interval)',
    [c.namespace, c.group, c.node, maxEvents, period(c.leaseFor)], leaseTime(c.leaseFor),
    `lease, attempt, ${eventColumns}, delivery, to_json(subscriptions)`)
  const [first] = rows
  return first && new Lease(first[0]!, Number(first[1]), rows.map((row) => new Event(row, 2, c.parse)), until)
}

/**
 * Stops the conditions of a group that are too slow for the time of a claim: the next claim would take too long again. Returns
 * whether it stopped one. The server ends a condition that never ends, since the call itself has to go on.
 */
async function stopSlowConditions(c: Consumption, maxEvents: number): Promise<boolean> {
  const limit = leaseTime(c.leaseFor)
  const stop = inlined(['stop_slow_conditions(text, text, int, interval)', [c.namespace, c.group, maxEvents, period(limit)], '*'])
  const rows = await c.database.query('stop slow conditions',
    `select set_config('statement_timeout', '${Math.round(limit + lastCondition)}', true); ${stop}`, [], 2 * limit + statementTime)
  return rows[0]![0] === 't'
}

/** Turns an error of a handler into an argument of posthorn.settle. */
export function failureOf(e: Event, subscription: string | undefined, error: unknown): Failure {
  const f: Failure = { event: String(e.id), subscription, error: clip(messageOf(error)), reason: 'Handler error' }
  if (error instanceof Permanent) f.permanent = true
  if (error instanceof RetryAfter || error instanceof Snooze) f.retry_in = period(error.milliseconds)
  if (error instanceof Snooze) f.released = true
  if (error instanceof Error && error.stack) f.stack = clip(error.stack)
  return f
}

/** Shortens the text of an error: some quote whole documents. */
export function clip(text: string): string {
  return storable(text.length <= clipped ? text : `${text.slice(0, clipped)} …`)
}

/** Whether later events of a slot have to wait: for a retry, but not for a dead letter. */
function holdsBack(failures: Failure[]): boolean {
  return failures.some((f) => !f.permanent)
}

/** Handles the events of a group, while `run` runs. */
export class Consumer {
  private readonly sizer: Sizer
  private readonly queue: Lease[] = [] // leases with events that are not begun
  private readonly live = new Set<Lease>()
  private runners = 0
  private news?: Bell // while it takes leases: there may be work
  private readonly changed = new Bell()
  private readonly helping = new Bell()
  private hasEnded = false
  private isFull = false // the last claim has returned as many events as it asked for
  private readonly breather = new Breather()
  private readonly failing: Failures
  private readonly taking: Trouble
  private readonly settling: Trouble
  private readonly extending: Trouble
  private readonly opening: Trouble
  private readonly releasing: Trouble
  private work!: AbortSignal

  constructor(private readonly c: Consumption) {
    this.sizer = new Sizer(c.batchSize)
    this.failing = new Failures(c.log)
    const trouble = (what: string) => new Trouble(c.log, what, { group: c.group })
    this.taking = trouble('cannot take work yet')
    this.settling = trouble('cannot settle yet')
    this.extending = trouble('cannot extend a lease yet')
    this.opening = trouble('cannot run a transaction yet')
    this.releasing = trouble('cannot give leases back yet')
  }

  /**
   * Handles events until `stop` comes. Then it takes no more, and returns when its leases are settled. The signals of
   * handlers come with `work`: events that are not done then are given back.
   */
  async run(stop: AbortSignal, work: AbortSignal): Promise<void> {
    this.work = work
    const hurry = () => this.live.forEach((lease) => lease.abort(stopping))
    const wake = () => this.signal()
    work.addEventListener('abort', hurry)
    stop.addEventListener('abort', wake)
    const more = this.takeMore(stop)
    try {
      await this.takeLeases(stop)
    } finally {
      this.hasEnded = true
      this.helping.ring()
      await more
      for (const lease of this.queue.filter((l) => l.next === 0)) {
        this.queue.splice(this.queue.indexOf(lease), 1)
        void this.giveBack(lease)
      }
      while (this.live.size > 0) await this.changed.wait()
      work.removeEventListener('abort', hurry)
      stop.removeEventListener('abort', wake)
    }
  }

  /** Whether a lease is one task: its events run one after another, in batches, or in transactions. */
  private get isSequential(): boolean {
    return this.c.isOrdered() || this.c.routes.batches || this.c.routes.transactional
  }

  private get hasRoom(): boolean {
    if (this.isSequential) return this.live.size < this.c.concurrency
    let queued = 0
    for (const lease of this.queue) queued += lease.events.length - lease.next
    return this.live.size < this.c.concurrency + 2 &&
      ((queued === 0 && this.runners < this.c.concurrency) || (this.sizer.quick && queued <= this.sizer.size))
  }

  private async takeLeases(stop: AbortSignal): Promise<void> {
    const news = (this.news = this.c.watch.subscribe('events'))
    try {
      while (!stop.aborted) {
        if (!this.hasRoom) {
          await this.changed.wait()
          continue
        }
        try {
          const found = await this.take(stop)
          this.taking.over()
          if (found) continue
          if (!this.c.isFiltered() || !(await this.hasUnread())) await this.c.watch.await(news, this.c.idlePoll, stop)
        } catch (error) {
          if (error instanceof PosthornError && error.code === 'not_found') throw error
          if (isCollision(error)) continue
          if (isDeadline(error) && this.c.isFiltered() && await stopSlowConditions(this.c, this.sizer.size).catch(() => false)) continue
          if (!stop.aborted) this.taking.report(error)
          await pause(troubleWait, stop)
        }
      }
    } finally {
      this.c.watch.unsubscribe(news)
    }
  }

  /** Takes leases beside takeLeases while there are many events: the server claims one while this process reads another. */
  private async takeMore(stop: AbortSignal): Promise<void> {
    while (!this.hasEnded) {
      if (this.isFull && !stop.aborted && this.sizer.quick && !this.isSequential && this.hasRoom) {
        await this.take(stop).catch(() => (this.isFull = false)) // takeLeases meets the error, too
      } else {
        await this.helping.wait()
      }
    }
  }

  /** Takes a lease. Returns whether there were events. */
  private async take(stop: AbortSignal): Promise<boolean> {
    const { size } = this.sizer
    const lease = await claim(this.c, size)
    this.isFull = lease?.events.length === size
    if (this.isFull) this.helping.ring()
    if (lease) await this.begin(lease, stop)
    return lease !== undefined
  }

  private signal(): void {
    this.changed.ring()
    this.helping.ring()
  }

  /** Whether the group has events at which it has not looked: few of them may match its subscriptions. */
  private async hasUnread(): Promise<boolean> {
    return (await this.c.database.value('has_unread(text, text)', [this.c.namespace, this.c.group])) === 't'
  }

  private async begin(lease: Lease, stop: AbortSignal): Promise<void> {
    this.live.add(lease)
    if (this.work.aborted) lease.abort(stopping)
    this.scheduleHeartbeat(lease, this.c.leaseFor / 3)
    if (stop.aborted) return this.giveBack(lease)
    await this.plan(lease)
    lease.isTask = this.isSequential
    this.queue.push(lease)
    const tasks = lease.isTask ? 1 : lease.events.length
    for (let i = 0; i < tasks && this.runners < this.c.concurrency; i++) {
      this.runners++
      void this.runTasks()
    }
  }

  /** Finds the routes of a lease. Before an event is buried for lack of a handler, it asks the other nodes. */
  private async plan(lease: Lease): Promise<void> {
    const find = () => (lease.routes = lease.events.map((e) => this.c.routes.of(e))).every((r) => r.unknown.length === 0)
    if (find()) return
    try {
      await this.c.askOthers()
      find()
    } catch (error) {
      this.taking.report(error)
      find()
      lease.routes = lease.routes.map((r) => ({ ...r, elsewhere: [...r.elsewhere, ...r.unknown], unknown: [] })) // they may have them
    }
  }

  /** Runs tasks until none is left. */
  private async runTasks(): Promise<void> {
    for (let lease = this.queue[0]; lease; lease = this.queue[0]) {
      lease.began ||= performance.now()
      if (lease.isTask) {
        this.queue.shift()
        lease.next = lease.events.length
        lease.running++
        await (this.c.routes.transactional ? this.inTransactions(lease) : this.inOrder(lease))
          .catch((error: unknown) => {
            this.c.log.error('cannot handle the events of a lease; it is given back', { group: this.c.group, lease: lease.id, error })
            return this.giveBack(lease)
          })
      } else if (lease.isAborted) {
        this.queue.shift()
        lease.leave(lease.next)
        lease.running++
      } else {
        const i = lease.next++
        if (lease.next === lease.events.length) this.queue.shift()
        lease.running++
        const failures = this.plain(lease, i, i + 1)
        this.finish(lease, i, i + 1, failures instanceof Promise ? await failures : failures)
      }
      lease.running--
      if (lease.isFinished) void this.conclude(lease)
      else if (this.queue.length === 0) this.signal()
      const rest = this.breather.due()
      if (rest) await rest
    }
    this.runners--
    this.signal()
  }

  /** Handles the events of a lease in order, in batches for handlers that take them. */
  private async inOrder(lease: Lease): Promise<void> {
    for (let start = 0; start < lease.events.length;) {
      if (lease.isAborted) return lease.leave(start)
      const end = this.chunkEnd(lease, start, false)
      const failures = await this.plain(lease, start, end)
      this.finish(lease, start, end, failures)
      if (this.c.blocks && holdsBack(failures)) return lease.leave(end)
      start = end
      const rest = this.breather.due()
      if (rest) await rest
    }
  }

  /** Only handlers of batches get more than one event, and only at the first attempt: a retried event is handled alone. */
  private chunkEnd(lease: Lease, start: number, transactional: boolean): number {
    const batchable = (i: number) => {
      const inside = lease.routes[i]!.transactional
      return lease.events[i]!.delivery <= 1 && (inside.length === 0 || (transactional && inside[0]!.batch))
    }
    let end = start + 1
    if (this.c.routes.batches && batchable(start)) while (end < lease.events.length && batchable(end)) end++
    return end
  }

  /** Calls the handlers without transactions. Returns their failures, without a promise if no handler has returned one. */
  private plain(lease: Lease, start: number, end: number): Failure[] | Promise<Failure[]> {
    const failures: Failure[] = []
    for (let i = start; i < end; i++) this.unhandled(lease.events[i]!, lease.routes[i]!, failures)
    const calls: (() => unknown)[] = []
    for (const h of this.c.routes.handlers) {
      if (h.transactional) continue
      const events = eventsFor(lease, h, start, end)
      if (events.length === 0) continue
      const batches = h.batch ? [events] : events.map((e) => [e])
      for (const batch of batches) calls.push(() => this.callPlain(lease, h, batch, failures))
    }
    for (let i = 0; i < calls.length; i++) {
      const pending = calls[i]!()
      if (pending) {
        return (async () => {
          await pending
          for (const call of calls.slice(i + 1)) await call()
          return failures
        })()
      }
    }
    return failures
  }

  private callPlain(lease: Lease, h: RegisteredHandler, events: Event[], failures: Failure[]): Promise<void> | undefined {
    const pending = this.call(lease, h, events)
    if (!pending) return undefined
    return pending.then((error) => {
      if (error !== undefined) this.judge(lease, h.name, events, false, error, failures)
    })
  }

  /** Calls a handler. Returns undefined if it is done already, and otherwise a promise of its error. */
  private call(lease: Lease, h: RegisteredHandler, events: Event[], tx?: Transaction): Promise<unknown> | undefined {
    const call = new Call(lease, this.c.timeout)
    const end = (error: unknown) => {
      const explained = call.explain(error ?? new Error('the handler has thrown nothing'))
      call.end()
      return explained
    }
    if (!this.c.telemetry.isOn && !tx) {
      try {
        const result = h.call(events, call, undefined)
        if (typeof (result as Promise<unknown> | undefined)?.then !== 'function') return void call.end()
        return (result as Promise<unknown>).then(() => void call.end(), end)
      } catch (error) {
        return Promise.resolve(end(error))
      }
    }
    if (tx) call.signal.addEventListener('abort', () => tx.break()) // its statement fails at once
    const run = async () => {
      await h.call(events, call, tx?.client)
      if (tx) call.signal.throwIfAborted() // its transaction is broken, whatever the handler makes of that
    }
    return this.c.telemetry.about({ operation: 'process', group: this.c.group, handler: h.name, batch: h.batch }, events, run)
      .then(() => void call.end(), end)
  }

  /** Failures of an event for subscriptions that have no handler in this process. */
  private unhandled(e: Event, r: Route, failures: Failure[]): void {
    const nobody = r.plain.length + r.transactional.length + r.elsewhere.length + r.unknown.length === 0
    for (const name of r.elsewhere) failures.push({ ...released(e, name), retry_in: handOverIn })
    const unknown = nobody && this.c.deadLetterUnhandled ? [undefined] : r.unknown
    for (const name of unknown) {
      failures.push({ event: String(e.id), subscription: name, permanent: true, reason: `No handler for event ${e.type}` })
    }
  }

  /**
   * Turns the error of a call into failures of its events: all of them failed, unless the error names those that have.
   * Then the others are done or, if they were rolled back, given back without a failure. If the signal has come, the
   * handler is not to blame.
   */
  private judge(lease: Lease, subscription: string, events: Event[], undone: boolean, error: unknown, failures: Failure[]): void {
    for (const e of events) {
      const own = error instanceof EventErrors ? error.failures.get(e.id) : error
      if (own === undefined && !undone) continue
      if (own === undefined || lease.isAborted) {
        failures.push(released(e, subscription))
        continue
      }
      failures.push(failureOf(e, subscription, own))
    }
  }

  /** Logs a failure, with its outcome. That is not known of a failure that could not be settled. */
  private report(lease: Lease, f: Failure, fate: Omit<Fate, 'failure'>): void {
    const e = lease.events.find(({ id }) => String(id) === f.event)
    if (f.released || !e) return
    this.failing.report(fate.dead === true,
      fate.dead ? 'an event failed for good and is a dead letter now' : fate.due_at ? 'a handler failed; its event is tried again' : 'a handler failed', {
        group: this.c.group, handler: f.subscription, event: e.id, type: e.type, attempt: e.delivery, error: f.error ?? f.reason,
        ...(fate.due_at && { next_attempt: fate.due_at }),
      })
  }

  /** Marks events as done. Failures are settled soon, together with others of the lease, before the lease ends. */
  private finish(lease: Lease, start: number, end: number, failures: Failure[]): void {
    if (lease.finish(start, end, failures)) this.scheduleHeartbeat(lease, failureWait)
  }

  private scheduleHeartbeat(lease: Lease, milliseconds: number): void {
    clearTimeout(lease.heartbeat)
    if (this.live.has(lease)) lease.heartbeat = setTimeout(() => void this.extend(lease), milliseconds)
  }

  /** Extends a lease. If some of its events are done or have failed, it settles them, which extends the lease too. */
  private async extend(lease: Lease): Promise<void> {
    const { timeout, leaseFor } = this.c
    if (lease.over || !this.live.has(lease)) return
    if (timeout > 0 && lease.began > 0 && Date.now() - lease.lastStep > timeout + leaseFor) {
      this.c.log.error('a handler does not return although its time is over: its lease is left to expire', { group: this.c.group, lease: lease.id })
      return
    }
    let next = leaseFor / 3
    try {
      await lease.settle(async () => {
        const asked = Date.now()
        const s = lease.unsettled()
        if (s.head === lease.head && s.failures.length === 0) {
          await this.c.database.call('extend(bigint, int, interval)',
            [lease.id, lease.attempt, period(leaseFor)], leaseTime(leaseFor))
          lease.extended(asked + leaseFor)
        } else {
          await this.settle(lease, s.head, s.failures, settlement(lease, s.failures, upTo(lease, s.head), leaseFor), leaseTime(leaseFor))
          lease.settled(s)
          lease.extended(asked + leaseFor / 2)
          next = leaseFor / 6
        }
        return false
      })
      this.extending.over()
    } catch (error) {
      if (isLeaseLost(error)) return
      this.extending.report(error)
      next = Math.min(next, 1000)
    }
    this.scheduleHeartbeat(lease, next)
  }

  /** Settles a lease up to an index, and logs the outcomes of its failures. */
  private async settle(lease: Lease, end: number, failures: Failure[], [signature, values, columns]: SqlCall, limit: number): Promise<void> {
    const rows = await this.observed(lease.events.slice(lease.head, end), () => this.c.database.call(signature, values, limit, columns))
    if (failures.length > 0) this.reportFates(lease, failures, rows.map(([fate]) => fate!))
  }

  private reportFates(lease: Lease, failures: Failure[], fates: string[]): void {
    for (const fate of fates.map((text) => JSON.parse(text) as Fate)) this.report(lease, failures[fate.failure]!, fate)
  }

  private observed<T>(events: Event[], settle: () => Promise<T>): Promise<T> {
    return this.c.telemetry.about({ operation: 'settle', group: this.c.group, batch: events.length !== 1 }, events, settle)
  }

  /** Settles a lease whose events are all done or given back. It retries while this process may still have the lease. */
  private async conclude(lease: Lease): Promise<void> {
    clearTimeout(lease.heartbeat)
    if (!lease.isLost && !lease.over) {
      this.sizer.took(lease.events.length, performance.now() - lease.began)
      const began = Date.now()
      const { leaseFor } = this.c
      try {
        await retry({
          outages: true, trouble: this.settling, signal: this.work,
          until: () => Date.now() - began > (this.work.aborted ? Math.min(leaseFor, lastWords) : leaseFor),
        }, () => lease.settle(async () => {
          const { failures } = lease.unsettled()
          await this.settle(lease, lease.events.length, failures, settlement(lease, failures), Math.max(leaseFor / 3, 1000))
          lease.settled({ head: lease.events.length, failures })
          return true
        }))
      } catch (error) {
        if (!isLeaseLost(error)) this.c.log.error('cannot settle; the events come again', { group: this.c.group, lease: lease.id, error })
      }
    }
    this.end(lease)
  }

  /** Gives back the rest of a lease. */
  private async giveBack(lease: Lease): Promise<void> {
    clearTimeout(lease.heartbeat)
    await lease.settle(async () => {
      await this.c.database.call('release(bigint, int)', [lease.id, lease.attempt], lastWords)
      return true
    }).then(() => this.releasing.over(), (error: unknown) => {
      if (!isLeaseLost(error)) this.releasing.report(error)
    })
    lease.over = true
    this.end(lease)
  }

  private end(lease: Lease): void {
    clearTimeout(lease.heartbeat)
    if (lease.isLost) this.c.log.warn('lease lost: others handle its events again', { group: this.c.group, lease: lease.id, events: lease.events.length })
    for (const f of lease.unsettled().failures) this.report(lease, f, {}) // its event comes again
    this.live.delete(lease)
    if (this.c.isOrdered()) this.news?.ring() // the next lease of its slot is free now
    this.signal()
  }

  /**
   * Runs the events of a lease in order, each in a transaction that also moves the head of the lease past it: the effect
   * and the acknowledgement commit together. If several handlers of an event need a transaction, the event is
   * acknowledged for the first one only, and delivered again to each of the others by itself.
   */
  private async inTransactions(lease: Lease): Promise<void> {
    const pipeline: Pipeline = { tx: undefined, since: 0 }
    try {
      for (let start = 0; start < lease.events.length;) {
        if (lease.isAborted) return lease.leave(start)
        const end = this.chunkEnd(lease, start, true)
        const failures = await this.plain(lease, start, end)
        const inside = this.c.routes.handlers.find((h) => h.transactional && eventsFor(lease, h, start, end).length > 0)
        const rest = inside ? await this.transact(lease, inside, start, end, failures, pipeline) : failures
        if (rest) {
          this.finish(lease, start, end, rest)
          if (this.c.blocks && holdsBack(rest)) return lease.leave(end)
        }
        lease.lastStep = Date.now()
        start = end
      }
    } catch (error) { // of the database
      if (lease.isLost) return
      if (!lease.isAborted) this.opening.report(error)
      await this.endPipeline(pipeline)
      await this.giveBack(lease)
      await pause(troubleWait, this.work)
    } finally {
      await this.endPipeline(pipeline)
    }
  }

  /** Runs one chunk in a transaction. Returns the failures that still have to be settled; undefined: it is settled. */
  private async transact(
    lease: Lease, inside: RegisteredHandler, start: number, end: number, failures: Failure[], pipeline: Pipeline,
  ): Promise<Failure[] | undefined> {
    const owed = failures.slice()
    for (let i = start; i < end; i++) {
      for (const h of lease.routes[i]!.transactional) if (h !== inside) owed.push(released(lease.events[i]!, h.name))
    }
    const events = eventsFor(lease, inside, start, end)
    for (let collisions = 0; ;) {
      const error = await this.once(lease, inside, events, end, owed, pipeline)
      if (error === undefined) {
        this.opening.over()
        return undefined
      }
      const isLost = pipeline.tx && !(await this.endPipeline(pipeline))
      if (isLost && !lease.isAborted && !isTimeout(error)) throw error // of the connection
      if (isCollision(error) && ++collisions < tries && !lease.isAborted) {
        await pause(Math.random() * 10 * collisions)
        continue
      }
      this.judge(lease, inside.name, events, true, error, owed)
      return owed
    }
  }

  /** Runs a handler in a transaction, which also settles its events. Returns its error, and throws that of the database. */
  private async once(
    lease: Lease, h: RegisteredHandler, events: Event[], end: number, owed: Failure[], pipeline: Pipeline,
  ): Promise<unknown> {
    const limit = leaseTime(this.c.leaseFor)
    if (!pipeline.tx) {
      pipeline.tx = await this.c.transactions.begin(limit, lease.signal)
      pipeline.since = performance.now()
    }
    const { tx } = pipeline
    tx.reopen()
    const error = await this.call(lease, h, events, tx)
    tx.close()
    if (error !== undefined) return error
    let failure: unknown
    let isSettled = false
    await lease.settle(async () => {
      const s = lease.unsettled()
      const over = end === lease.events.length
      const another = !over && !this.c.routes.batches && performance.now() - pipeline.since < keepTransaction && this.needsOnlyTransaction(lease, end)
      const failures = [...s.failures, ...owed]
      const settle = inlined(settlement(lease, failures, over ? undefined : upTo(lease, end), this.c.leaseFor))
      let fates: string[] = []
      try {
        await this.observed(lease.events.slice(lease.head, end), async () => {
          const results = await tx.run(`${settle}; commit${another ? '; begin' : ''}`, Math.max(limit, this.c.leaseFor))
          if (results[1]?.command === 'ROLLBACK') throw swallowed()
          if (failures.length > 0) fates = (results[0]!.rows as { fate: string }[]).map(({ fate }) => fate)
        })
      } catch (error) {
        if (isLeaseLost(asLeaseLost(error))) throw asLeaseLost(error)
        if (sqlState(error) === '25P02') failure = swallowed() // a statement failed, and the handler went on
        else if (isOutage(error) || error instanceof PosthornError && error.code !== 'refused') throw error
        else failure = error // such as a deferred constraint
        return false
      }
      isSettled = true
      lease.settled({ head: end, failures: s.failures })
      this.reportFates(lease, failures, fates)
      if (!another) {
        pipeline.tx = undefined
        tx.release()
      }
      return over
    })
    if (!isSettled && failure === undefined) throw new PosthornError('lease_lost', 'the lease has ended before')
    return failure
  }

  /** Whether an event needs a transaction and no other handler: a transaction must not lie idle meanwhile. */
  private needsOnlyTransaction(lease: Lease, i: number): boolean {
    const r = lease.routes[i]!
    return r.transactional.length > 0 && r.plain.length === 0
  }

  /** Rolls back. Returns whether the connection works. */
  private async endPipeline(pipeline: Pipeline): Promise<boolean> {
    const { tx } = pipeline
    pipeline.tx = undefined
    return tx === undefined || tx.end(lastWords)
  }
}

/** The transaction of a worker, which ends in the round trip that begins the next one. */
interface Pipeline {
  tx: Transaction | undefined
  since: number
}

/** A call as a statement without parameters. */
function inlined([signature, values, columns]: SqlCall): string {
  const [name] = signature.split('(')
  return `select ${columns} from posthorn.${name}(${values.map((v) => v === null ? 'null' : pg.escapeLiteral(String(v))).join(', ')})`
}

function eventsFor(lease: Lease, h: RegisteredHandler, start: number, end: number): Event[] {
  const events: Event[] = []
  for (let i = start; i < end; i++) {
    const r = lease.routes[i]!
    if ((h.transactional ? r.transactional : r.plain).includes(h)) events.push(lease.events[i]!)
  }
  return events
}

function asLeaseLost(error: unknown): unknown {
  return sqlState(error) === 'PH003' ? new PosthornError('lease_lost', messageOf(error), undefined, { cause: error }) : error
}
