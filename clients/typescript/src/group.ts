import type { ClientBase } from 'pg'
import type { Posthorn } from './posthorn.js'
import { Consumer, type Consumption } from './consume.js'
import { leaseTime, period } from './database.js'
import { invalid, isFinal, PosthornError } from './errors.js'
import type { Event } from './event.js'
import { deliveries, type Delivery, type FetchOptions, FetchedLeases } from './fetch.js'
import type { HandlerContext } from './hold.js'
import { Trouble } from './log.js'
import { checkPatterns, type RegisteredHandler, Routes } from './route.js'
import { Bell } from './wait.js'

/** Where a group or a reader begins: now, at the beginning of the log, or at a time. */
export type Moment = 'now' | 'beginning' | Date

/** Selects the events that meet all of its conditions. */
export interface Filter {
  /** Patterns, of which one must match: order.placed, order.* for any one part, order.> for one or more parts. */
  types?: string[]
  streams?: string[]
  /** The event has one of them. */
  keys?: string[]
  tagsAny?: string[]
  /** The event has all of them. */
  tagsAll?: string[]
}

/** Selects events of a group. Without filter and condition it selects all. */
export interface Subscription {
  filter?: Filter & {
    /** Is contained in the payload of the event, as with the operator @> of jsonb. */
    payload?: unknown
  }
  /** Instead of a filter: an SQL expression over e, the event, and s.params. It needs the role posthorn_admin. */
  condition?: string
  /** The value of s.params, an object. */
  params?: Record<string, unknown>
  /** Removes the subscription after its group had no consumer for so many milliseconds. */
  expireAfter?: number
}

/** In place of patterns: the handler is for the subscription with its name. */
export const subscribed: unique symbol = Symbol('subscribed')

export type Patterns = string | typeof subscribed

/** Handles an event. An error lets it be tried again; see {@link Permanent}, {@link RetryAfter} and {@link Snooze}. */
export type Handler = (event: Event, context: HandlerContext) => unknown

/** Wraps a handler, to run code before and after it. */
export type Middleware = (next: Handler) => Handler

/**
 * Configures a group. Order, slots, setAside, attempts, delays and backoff are stored in the database: the most recently
 * started process sets them for all. All times are in milliseconds.
 */
export interface GroupOptions {
  /** Which events may not be handled at the same time: those with one key, of one stream, or all. Default: none. */
  order?: 'none' | 'key' | 'stream' | 'total'
  /** The number of slots into which keys are hashed. Default: 16. */
  slots?: number
  /** Continues with the next events of a slot while a failed event waits for its next attempt. Default: they wait too. */
  setAside?: boolean
  /** Where a new group begins. Default: now. */
  start?: Moment
  /** The attempts before an event becomes a dead letter; Infinity for no limit. Default: 5. */
  attempts?: number
  /** The delays before further attempts; the last one repeats. Default: those of `backoff`. */
  delays?: number[]
  /** Default: from one second, doubling up to five minutes. */
  backoff?: { from?: number; to?: number; factor?: number }
  /** Makes a dead letter of an event for which no live node has a handler. Default: it is skipped. */
  deadLetterUnhandled?: boolean
  /** The names that handlers and subscriptions had before, by their present name. */
  formerly?: Record<string, string[]>
  /** How many handlers run at once in this process. Default: 10. */
  concurrency?: number
  /** The most events of one lease. Leases begin small, and grow while handlers are quick. Default: 1000. */
  batchSize?: number
  /** How long the events of a process that has died wait for another one. Leases are extended while handlers run. Default: 30 seconds. */
  leaseFor?: number
  /** Of one call of a handler: then its signal comes. 0 for none. Default: 5 minutes. */
  timeout?: number
  /** How often an idle group looks for events without a notification. Default: 500 ms. */
  idlePoll?: number
  /** Wraps every handler of single events. The first one is the outermost. */
  middleware?: Middleware[]
}

const handlerInterval = 1000 // between two reads of the handlers of other nodes

/** A named position in the log, shared by all processes that use the name. Each event is handled once per group. */
export class Group {
  readonly options: GroupOptions & { concurrency: number; batchSize: number; leaseFor: number; timeout: number; idlePoll: number }
  private readonly routes = new Routes()
  private readonly subscriptions = new Map<string, { selection: Subscription; isSaved: boolean }>()
  private readonly changed = new Bell()
  private readonly transactions = new WeakMap<HandlerContext, ClientBase>()
  private id: string | undefined
  private defining: Promise<string> | undefined
  private orderPending = false
  private isFiltered = false
  private fetched: FetchedLeases | undefined

  /** @internal */
  constructor(private readonly client: Posthorn, readonly name: string, options: GroupOptions) {
    this.options = {
      ...options, concurrency: options.concurrency ?? 10, batchSize: options.batchSize ?? 1000, leaseFor: options.leaseFor ?? 30_000,
      timeout: options.timeout ?? 300_000, idlePoll: options.idlePoll ?? 500,
    }
    const bounds = (value: number, from: number, to: number) => value >= from && value <= to
    if (!bounds(this.options.concurrency, 1, 10_000)) throw invalid('concurrency must be from 1 to 10000', 'Leave it out for 10.')
    if (!bounds(this.options.batchSize, 1, 10_000)) throw invalid('batchSize must be from 1 to 10000', 'Leave it out for 1000.')
    if (!bounds(this.options.leaseFor, 1000, 86_400_000)) {
      throw invalid('leaseFor must be from a second to a day', 'Leave it out for 30 seconds; leases are extended while handlers run.')
    }
    if (!bounds(this.options.idlePoll, 1, Infinity)) throw invalid('idlePoll must be a millisecond or more', 'Leave it out for 500 milliseconds.')
  }

  /**
   * Registers a handler for the events whose type matches one of the patterns, which are separated by commas. In a
   * pattern * stands for one part of the type, and > at the end for one or more parts. Retries are stored under the name,
   * which is unique in the group.
   */
  handle(name: string, patterns: Patterns, handler: Handler): void {
    const wrapped = this.wrap(handler)
    this.add(name, patterns, false, false, ([event], call) => wrapped(event!, call))
  }

  /**
   * Registers a handler that gets the client of the transaction in which the event is settled: both commit together, so
   * the effect of the transaction happens exactly once, events that it publishes included. An error rolls it back.
   */
  handleTx(name: string, patterns: Patterns, handler: (tx: ClientBase, event: Event, context: HandlerContext) => unknown): void {
    const wrapped = this.wrap((event, context) => handler(this.transactions.get(context)!, event, context))
    this.add(name, patterns, true, false, ([event], call, tx) => {
      this.transactions.set(call, tx!)
      return wrapped(event!, call)
    })
  }

  /**
   * Registers a handler that gets many events per call, in order. An error fails all of them, except {@link EventErrors}.
   * Failed events are retried one by one. Middleware does not apply.
   */
  handleBatch(name: string, patterns: Patterns, handler: (events: Event[], context: HandlerContext) => unknown): void {
    this.add(name, patterns, false, true, (events, call) => handler(events, call))
  }

  /** Registers a handler that gets many events per call, and the transaction in which they are settled. */
  handleBatchTx(name: string, patterns: Patterns, handler: (tx: ClientBase, events: Event[], context: HandlerContext) => unknown): void {
    this.add(name, patterns, true, true, (events, call, tx) => handler(tx!, events, call))
  }

  /**
   * Gives the group a subscription. The database then finds the matching events, and skips those that match no
   * subscription of the group. Register the handler under the same name, with {@link subscribed} in place of patterns.
   */
  subscribe(name: string, selection: Subscription = {}): void {
    this.checkName(name, 'subscription')
    if (this.subscriptions.has(name)) throw invalid(`subscription "${name}" is registered twice`, 'Names are unique within a group.')
    if (selection.condition && selection.filter) {
      throw invalid('both filter and condition are given', 'Express the filter as a part of the condition, or leave the condition out.')
    }
    this.subscriptions.set(name, { selection, isSaved: false })
    this.changed.ring()
  }

  /**
   * Takes up to n events, for programs that poll; see {@link Delivery}. It waits until there is an event, or until the
   * signal comes. It works with and without {@link Posthorn.run}.
   */
  async fetch(n: number, options: FetchOptions = {}): Promise<Delivery[]> {
    if (!(n >= 1 && n <= 10_000)) throw invalid('n must be from 1 to 10000', 'Fetch as many events as you can answer within leaseFor.')
    if (!this.fetched) {
      await this.define()
      await this.saveSubscriptions(() => true)
      this.fetched ??= this.client.fetchedLeases({ ...this.consumption(), blocks: this.blocks })
    }
    return this.fetched.fetch(n, options)
  }

  /**
   * Yields the events of the group one by one, until the signal comes. It extends the lease before each step, so only a
   * step that takes longer than `leaseFor` needs {@link Delivery.extend}. Leaving the loop gives back what has no answer.
   */
  deliveries(options: FetchOptions = {}): AsyncIterableIterator<Delivery> {
    const trouble = new Trouble(this.client.log, 'cannot fetch yet', { group: this.name })
    return deliveries((n) => this.fetch(n, options), this.options.batchSize, trouble, options.signal)
  }

  /** Whether there is something to run: a group that only fetch reads is not run. @internal */
  get hasHandlers(): boolean {
    return this.routes.handlers.length > 0
  }

  /** Handles events until `stop` comes. @internal */
  async run(stop: AbortSignal, work: AbortSignal): Promise<void> {
    await this.define()
    await this.record(true)
    const ended = new AbortController()
    const end = () => ended.abort()
    stop.addEventListener('abort', end)
    const recording = this.keepRecorded(ended.signal)
    try {
      await new Consumer(this.consumption()).run(stop, work)
    } catch (error) {
      if (!(error instanceof PosthornError && error.code === 'not_found')) throw error
      this.client.log.warn('the group was deleted: this process handles it no more', { group: this.name })
    } finally {
      stop.removeEventListener('abort', end)
      end()
      await recording
    }
  }

  /** Writes the handlers of this node into the database, for other nodes. @internal */
  async recordHandlers(): Promise<void> {
    const handlers = this.routes.handlers.map((h) => ({ name: h.name, patterns: h.patterns, formerly: h.formerly }))
    await this.client.database.call('set_node_handlers(text, text, text, jsonb)',
      [this.client.namespace, this.client.nodeId, this.name, JSON.stringify(handlers)])
  }

  private get blocks(): boolean {
    return (this.options.order ?? 'none') !== 'none' && !this.options.setAside
  }

  private consumption(): Consumption {
    const { client, options, routes } = this
    return {
      ...client.parts(), group: this.name, routes, askOthers: async () => void (await this.keep()), isFiltered: () => this.isFiltered,
      isOrdered: () => (options.order ?? 'none') !== 'none' || this.orderPending, blocks: this.blocks,
      deadLetterUnhandled: options.deadLetterUnhandled ?? false,
      concurrency: options.concurrency, batchSize: options.batchSize, leaseFor: options.leaseFor, timeout: options.timeout, idlePoll: options.idlePoll,
    }
  }

  private wrap(handler: Handler): Handler {
    return (this.options.middleware ?? []).reduceRight((next, middleware) => middleware(next), handler)
  }

  private checkName(name: string, of: string): void {
    if (!name || Buffer.byteLength(name) > 255) throw invalid(`a ${of} needs a name of up to 255 bytes`, 'Give it a name that stays.')
  }

  private add(name: string, patterns: Patterns, transactional: boolean, batch: boolean, call: RegisteredHandler['call']): void {
    this.checkName(name, 'handler')
    if (this.routes.handlers.some((h) => h.name === name)) throw invalid(`handler "${name}" is registered twice`, 'Names are unique within a group.')
    const list = patterns === subscribed ? [] : patterns.split(',').map((p) => p.trim()).filter((p) => p)
    if (patterns !== subscribed && list.length === 0) throw invalid(`handler "${name}" has no patterns`, 'Give it patterns, like order.placed or order.*.')
    checkPatterns(list, `handler "${name}"`)
    this.routes.add({ name, patterns: list, formerly: this.options.formerly?.[name] ?? [], transactional, batch, call })
    this.changed.ring()
    this.client.wake()
  }

  /** Creates the group, or changes its policy. If the order cannot change yet, the rest of the policy does. */
  private define(): Promise<string> {
    this.defining ??= this.defineOnce().finally(() => (this.defining = undefined))
    return this.defining
  }

  private async defineOnce(): Promise<string> {
    const [row] = await this.client.database.call('begin_group(text, text, jsonb)', [this.client.namespace, this.name, this.policy()])
    const [id, hasOrder, hint] = row!
    this.orderPending = hasOrder !== 't'
    if (this.orderPending) this.client.log.warn('the order of the group cannot change yet', { group: this.name, hint })
    return (this.id = id!)
  }

  /** The options that the database stores. */
  private policy(): string {
    const { order, slots, setAside, start, attempts, delays, backoff } = this.options
    const optional = (milliseconds: number | undefined) => milliseconds === undefined ? undefined : period(milliseconds)
    return JSON.stringify({
      order, slots, on_failure: setAside ? 'set_aside' : undefined, attempts: attempts === Infinity ? 0 : attempts,
      start: start instanceof Date ? start.toISOString() : start,
      ...(delays?.length ? { delays: delays.map(period) } : { backoff: { from: optional(backoff?.from), to: optional(backoff?.to), factor: backoff?.factor } }),
    })
  }

  /** Writes the handlers of this node and then the subscriptions: an event that matches one must find its handler. */
  private async record(all: boolean): Promise<void> {
    this.checkMix()
    await this.recordHandlers()
    if (all) this.subscriptions.forEach((s) => (s.isSaved = false))
    await this.saveSubscriptions((name) => this.routes.handlers.some((h) => h.name === name))
    this.checkReachable(await this.keep())
  }

  private async saveSubscriptions(isReady: (name: string) => boolean): Promise<void> {
    const { client } = this
    for (const [name, s] of this.subscriptions) {
      if (s.isSaved || !isReady(name)) continue
      const { filter, condition, params, expireAfter } = s.selection
      const document = {
        type: filter?.types, stream: filter?.streams, key: filter?.keys, tags_any: filter?.tagsAny, tags_all: filter?.tagsAll,
        payload: filter?.payload, conditions_sql: condition, params, expiry_interval: expireAfter === undefined ? undefined : period(expireAfter),
      }
      await client.database.call('subscribe(text, text, text, jsonb, text[])',
        [client.namespace, this.name, name, JSON.stringify(document), this.options.formerly?.[name] ?? []])
      s.isSaved = true
    }
  }

  /** A group has subscriptions or handlers with patterns: the database delivers only events that match a subscription. */
  private checkMix(): void {
    const byPattern = this.routes.handlers.find((h) => h.patterns.length > 0)
    const bySubscription = this.routes.handlers.find((h) => h.patterns.length === 0)?.name ?? [...this.subscriptions.keys()][0]
    if (!byPattern || bySubscription === undefined) return
    throw invalid(`group ${this.name}: handler "${byPattern.name}" has patterns, and "${bySubscription}" is a subscription: events that match no subscription would never reach the handler`,
      `Subscribe "${byPattern.name}" too and register its handler with subscribed, or give it a group of its own.`)
  }

  /** Refuses handlers that no event can reach: neither the database nor this program has a subscription of their name. */
  private checkReachable(unreachable: string[]): void {
    const missing = unreachable.find((name) => !this.subscriptions.has(name))
    if (missing === undefined) return
    throw invalid(`group ${this.name}: handler "${missing}" would get no events: no subscription of the group has its name`,
      `Call subscribe first, or run: posthorn groups subscribe ${this.name} ${missing}; or move the handler to another group.`)
  }

  /**
   * Keeps the subscriptions from expiring, changes the order if that is still to be done and possible now, and reads the
   * handlers of other live nodes: events for handlers that this node lacks are left to them. Returns the handlers without a
   * subscription.
   */
  private async keep(): Promise<string[]> {
    const wanted = this.orderPending ? this.policy() : null
    const [row] = await this.client.database.call('keep_group(bigint, text, jsonb)', [this.id, this.client.nodeId, wanted],
      leaseTime(this.options.leaseFor), 'filtered, has_order, to_json(unreachable), others, names')
    const [filtered, hasOrder, unreachable, others, names] = row!
    this.isFiltered = filtered === 't'
    if (wanted && hasOrder === 't') this.orderPending = false
    this.routes.setOthers(JSON.parse(others!), new Map(Object.entries(JSON.parse(names!))))
    return JSON.parse(unreachable!)
  }

  /** Records new handlers and subscriptions, and reads those of other nodes, until the signal comes. */
  private async keepRecorded(stop: AbortSignal): Promise<void> {
    const trouble = new Trouble(this.client.log, 'nodes cannot exchange their handlers yet', { group: this.name })
    let reported = ''
    for (let isNew = false; ;) {
      isNew = (await this.changed.wait(handlerInterval, stop)) || isNew
      if (stop.aborted) return
      try {
        await (isNew ? this.record(false) : this.keep().then((unreachable) => this.checkReachable(unreachable)))
        isNew = false
        trouble.over()
      } catch (error) {
        if (stop.aborted || (error instanceof PosthornError && error.code === 'not_found')) continue // the node registers again
        if (!isFinal(error)) {
          trouble.report(error)
          continue
        }
        isNew = false
        if (reported !== String(error)) this.client.log.error('a new handler or subscription cannot be used', { group: this.name, error })
        reported = String(error)
      }
    }
  }
}
