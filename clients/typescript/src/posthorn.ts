import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type pg from 'pg'
import { Admin } from './admin.js'
import type { Consumption } from './consume.js'
import { Database, type DB, openPool, retry, settingsOf, settingsOfPool } from './database.js'
import { invalid, isFinal, isOutage, isStarting, Moved, PosthornError, sqlState } from './errors.js'
import type { Event, Parse } from './event.js'
import { FetchedLeases } from './fetch.js'
import { Group, type GroupOptions } from './group.js'
import { consoleLogger, type Logger, Trouble } from './log.js'
import { checkTags, encodePayload, type Encoder, enqueue, type Message, type NewJob, publish, publishTo } from './publish.js'
import { Reader, type ReadOptions } from './read.js'
import { schedule, type Schedule, unschedule } from './schedule.js'
import { Telemetry } from './telemetry.js'
import { leastConnections, Transactions } from './transaction.js'
import { upkeep } from './upkeep.js'
import { lastWords, pause, sharedController } from './wait.js'
import { Watch } from './watch.js'
import { type JobHandler, JobWorker, type WorkOptions } from './work.js'

/** Names the database and describes this process. Either `databaseUrl` or `pool` is required. */
export interface Options {
  /** The database with Posthorn's schema. The URL may name several hosts, separated by commas: when one stops answering, the client connects to the next one. */
  databaseUrl?: string | undefined
  /**
   * A pool of `pg`, in place of `databaseUrl`. The client runs the transactions of handlers in it and never closes it. For
   * its own statements the client opens connections with the same settings.
   */
  pool?: pg.Pool
  /** The tenant of the client. Default: default. */
  namespace?: string | undefined
  /** The name of this process, which is unique in the namespace. Default: the host name, the process id and random digits. */
  nodeId?: string
  /** Describe this process to people, in posthorn nodes list. */
  displayName?: string
  description?: string
  nodeMetadata?: Record<string, unknown>
  /** The name of the connections in pg_stat_activity. Default: posthorn. */
  applicationName?: string
  /** Bounds the connections of {@link Posthorn.pool}; at most half of them are for the transactions of handlers. At least 2. Default: 20. */
  maxConnections?: number
  /** How many milliseconds handlers may continue after the signal of run has come. Default: 20 seconds. */
  drainFor?: number
  /** Reads payloads, results of steps and progress. Default: JSON.parse, which damages numbers beyond 2^53. */
  parse?: Parse
  /** Writes payloads, results of steps and progress. Default: JSON.stringify. */
  stringify?: (value: unknown) => string
  /** Default: writes warnings and errors to the console. */
  logger?: Logger
}

const controlConnections = 5
const heartbeatInterval = 30_000

interface Component {
  label: string
  isReady(): boolean
  run(stop: AbortSignal, work: AbortSignal): Promise<void>
}

/** Publishes and handles the events and jobs of one namespace. */
export class Posthorn {
  readonly namespace: string
  readonly nodeId: string
  readonly log: Logger
  /** The pool in which the transactions of handlers run. The program may use it too. */
  readonly pool: pg.Pool
  readonly admin: Admin
  /** @internal */
  readonly database: Database

  private readonly ownsPool: boolean
  private readonly drainFor: number
  private readonly parse: Parse
  private readonly stringify: (value: unknown) => string
  private readonly transactions: Transactions
  private readonly watch: Watch
  private readonly groups = new Map<string, Group>()
  private readonly components: Component[] = []
  private readonly fetched: FetchedLeases[] = []
  private startReady: (() => void) | undefined // while run runs
  private running: { end: () => void; ended: Promise<void> } | undefined
  private isClosed = false

  private constructor(private readonly options: Options, private readonly telemetry: Telemetry, nodeId: string) {
    this.namespace = options.namespace ?? 'default'
    this.nodeId = nodeId
    this.log = options.logger ?? consoleLogger
    this.drainFor = options.drainFor ?? 20_000
    this.parse = options.parse ?? JSON.parse
    this.stringify = options.stringify ?? JSON.stringify
    const settings = options.pool ? settingsOfPool(options.pool) : settingsOf(options.databaseUrl!, options.applicationName)
    this.ownsPool = !options.pool
    this.pool = options.pool ?? openPool(settings, options.maxConnections ?? 20)
    this.database = new Database(settings, controlConnections, this.log)
    this.database.monitor.watchPool(this.pool)
    this.transactions = new Transactions(this.pool, this.log)
    this.watch = new Watch(this.database, new Trouble(this.log, 'cannot watch for news, workers poll meanwhile'))
    this.admin = new Admin(this.database, this.namespace)
  }

  /**
   * Connects to the database, and checks its schema and the namespace. While the server starts or recovers from a crash,
   * it waits, and logs that. Close the client when it is no longer needed.
   */
  static async open(options: Options): Promise<Posthorn> {
    if (!options.databaseUrl === !options.pool) {
      throw invalid(options.pool ? 'both databaseUrl and pool are given' : 'no database is given',
        'Give databaseUrl, like postgres://user@host/database, or pool.')
    }
    const connections = options.pool ? (options.pool.options.max ?? 10) : (options.maxConnections ?? 20)
    if (!(connections >= leastConnections)) {
      throw invalid(`the pool has ${connections} connection, and ${leastConnections} are needed`,
        `Set ${options.pool ? 'max of the pool' : 'maxConnections'} to ${leastConnections} or more: one for the transaction of a handler, and one that the handler takes beside it. They are opened when they are needed.`)
    }
    const nodeId = (options.nodeId ?? newNodeId()).replace(/[^A-Za-z0-9_.:-]/g, '_')
    const client = new Posthorn(options, await Telemetry.load(options.namespace ?? 'default', nodeId), nodeId)
    try {
      await onceReady(client.log, () => client.database.call('namespace_id(text)', [client.namespace]))
    } catch (error) {
      await client.close()
      if (['3F000', '42883', '42P01'].includes(sqlState(error) ?? '')) {
        throw new PosthornError('not_migrated', 'open posthorn: the database is not migrated', 'Run: posthorn migrate', { cause: error })
      }
      throw error
    }
    return client
  }

  /**
   * Writes messages into the log, in order and in one statement, and returns the ids of their events. If db is a client in
   * a transaction, the events exist if and only if it commits. A delayed message gets another id when it enters the log.
   * For a dedupKey that was used before, the id is that of the existing event.
   */
  publish(db: DB, message: Message): Promise<bigint>
  publish(db: DB, messages: Message[]): Promise<bigint[]>
  async publish(db: DB, messages: Message | Message[]): Promise<bigint | bigint[]> {
    const list = Array.isArray(messages) ? messages : [messages]
    const ids = await this.sending('publish', list.map((m) => m.stream ?? 'default'), () => publish(this.encoder(), db, list))
    return Array.isArray(messages) ? ids : ids[0]!
  }

  /** Publishes messages to one subscription of a group: no other one receives them. */
  publishTo(db: DB, group: string, subscription: string, message: Message): Promise<bigint>
  publishTo(db: DB, group: string, subscription: string, messages: Message[]): Promise<bigint[]>
  async publishTo(db: DB, group: string, subscription: string, messages: Message | Message[]): Promise<bigint | bigint[]> {
    const list = Array.isArray(messages) ? messages : [messages]
    const ids = await this.sending('publish', list.map((m) => m.stream ?? 'default'), () => publishTo(this.encoder(), db, group, subscription, list))
    return Array.isArray(messages) ? ids : ids[0]!
  }

  /**
   * Writes jobs, in order and in one statement, and returns their ids. If db is a client in a transaction, the jobs exist
   * if and only if it commits. For a uniqueKey that is in use, the id is that of the existing job.
   */
  enqueue(db: DB, job: NewJob): Promise<bigint>
  enqueue(db: DB, jobs: NewJob[]): Promise<bigint[]>
  async enqueue(db: DB, jobs: NewJob | NewJob[]): Promise<bigint | bigint[]> {
    const list = Array.isArray(jobs) ? jobs : [jobs]
    const ids = await this.sending('enqueue', list.map(() => 'jobs'), () => enqueue(this.encoder(), db, list))
    return Array.isArray(jobs) ? ids : ids[0]!
  }

  /** Returns a group. Register its handlers for {@link run}, or take events with fetch. Call it once per name. */
  group(name: string, options: GroupOptions = {}): Group {
    if (this.groups.has(name)) throw invalid(`group "${name}" is registered twice`, 'Call group once per name, and keep the result.')
    const group = new Group(this, name, options)
    this.groups.set(name, group)
    this.register({ label: `group ${name}`, isReady: () => group.hasHandlers, run: (stop, work) => group.run(stop, work) })
    return group
  }

  /** Registers a handler for the jobs that have one of the tags or, without tags, for the jobs that have none. */
  work(tags: string[], handler: JobHandler): void
  work(tags: string[], options: WorkOptions, handler: JobHandler): void
  work(tags: string[], options: WorkOptions | JobHandler, handler?: JobHandler): void {
    const given = typeof options === 'function' ? {} : options
    const handle = typeof options === 'function' ? options : handler!
    checkTags('work', tags)
    const label = tags.length > 0 ? `jobs tagged ${tags.join(', ')}` : 'jobs without tags'
    if (this.components.some((c) => c.label === label)) throw invalid(`"${label}" is registered twice`, 'Register each job handler once.')
    const { concurrency = 10, batchSize = 1000, leaseFor = 60_000, timeout = 3600_000 } = given
    if (!(concurrency >= 1 && concurrency <= 10_000)) throw invalid('concurrency must be from 1 to 10000', 'Leave it out for 10.')
    if (!(batchSize >= 1 && batchSize <= 10_000)) throw invalid('batchSize must be from 1 to 10000', 'Leave it out for 1000.')
    if (!(leaseFor >= 1000 && leaseFor <= 86_400_000)) {
      throw invalid('leaseFor must be from a second to a day', 'Leave it out for a minute; leases are extended while handlers run.')
    }
    this.register({
      label, isReady: () => true, run: (stop, work) =>
        new JobWorker({ ...this.parts(), stringify: this.stringify, tags, concurrency, batchSize, leaseFor, timeout, handle }).run(stop, work),
    })
  }

  /**
   * Creates a schedule, or changes the existing one with its name, and returns its id. Programs call it at each start: an
   * unchanged schedule keeps its next time. Each due time publishes one event, however many nodes run.
   */
  schedule(db: DB, s: Schedule): Promise<string> {
    return schedule(this.encoder(), db, s)
  }

  /** Deletes a schedule, and returns whether there was one. */
  unschedule(db: DB, name: string): Promise<boolean> {
    return unschedule(this.namespace, db, name)
  }

  /** Returns a reader of the log, without a group. */
  read(options: ReadOptions = {}): Reader {
    const trouble = new Trouble(this.log, 'cannot read the log yet')
    return new Reader({ database: this.database, watch: this.watch, parse: this.parse, namespace: this.namespace, trouble }, options)
  }

  /**
   * Makes this process a node: it runs all groups with handlers and job handlers, fires schedules and does the upkeep of
   * the log, until the signal comes. Then it takes no more work, waits `drainFor` for handlers, gives back what is not
   * finished, and returns. Errors of the database are logged, and it tries again. It throws an error only if another
   * attempt would not succeed either.
   */
  async run(signal?: AbortSignal): Promise<void> {
    if (this.isClosed) throw new PosthornError('closed', 'the client is closed')
    if (this.startReady) throw new PosthornError('conflict', 'this client is running already')
    const [stop, work, serve] = [sharedController(), sharedController(), sharedController()]
    const end = () => stop.abort()
    let ended!: () => void
    this.running = { end, ended: new Promise((resolve) => (ended = resolve)) }
    let draining: NodeJS.Timeout | undefined
    stop.signal.addEventListener('abort', () => {
      draining = setTimeout(() => work.abort(), this.drainFor)
    })
    signal?.addEventListener('abort', end)
    if (signal?.aborted) end()
    let failure: { error: unknown } | undefined
    const running: Promise<void>[] = []
    const started = new Set<Component>()
    this.startReady = () => {
      for (const c of this.components) {
        if (stop.signal.aborted || started.has(c) || !c.isReady()) continue
        started.add(c)
        running.push(this.retried(stop.signal, c.label, () => c.run(stop.signal, work.signal)).catch((error: unknown) => {
          failure ??= { error }
          end()
        }))
      }
    }
    const services: Promise<void>[] = []
    try {
      // Upkeep is for all namespaces, and the registration may have to wait: in a namespace that is being deleted, for instance.
      services.push(upkeep(this.database, this.watch, this.log, serve.signal))
      await this.retried(stop.signal, 'this node', () => this.registerNode())
      services.push(this.sendHeartbeats(serve.signal))
      this.startReady()
      while (!stop.signal.aborted) await pause(3600_000, stop.signal)
      for (let n = 0; n < running.length; n = running.length) await Promise.all(running)
      await Promise.all(this.fetched.map((leases) => leases.drained(work.signal)))
      await Promise.all(this.fetched.map((leases) => leases.giveBack()))
    } catch (error) {
      failure ??= { error }
    } finally {
      this.startReady = undefined
      signal?.removeEventListener('abort', end)
      clearTimeout(draining)
      serve.abort()
      await Promise.all(services) // a heartbeat after that would register the node again
      await this.database.call('remove_node(text, text)', [this.namespace, this.nodeId], lastWords)
        .catch((error: unknown) => this.log.warn('cannot remove this node; its leases expire', { error }))
      this.running = undefined
      ended()
    }
    if (failure) throw failure.error
  }

  /** Ends run, gives back fetched events without an answer, and closes the connections that the client has opened. */
  async close(): Promise<void> {
    if (this.isClosed) return
    this.isClosed = true
    this.running?.end()
    await this.running?.ended
    await Promise.all(this.fetched.map((leases) => leases.close()))
    await this.watch.close()
    await this.database.close()
    if (this.ownsPool) await this.pool.end()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /** Calls a function in the trace of the publisher of an event, for programs that fetch or read events. */
  inTraceOf<T>(event: Event, run: () => T): T {
    return this.telemetry.continue(event.metadataText, run)
  }

  /** Lets run look for components that are ready. @internal */
  wake(): void {
    this.startReady?.()
  }

  /** @internal */
  parts(): Pick<Consumption, 'database' | 'transactions' | 'watch' | 'telemetry' | 'log' | 'parse' | 'namespace' | 'node'> {
    const { database, transactions, watch, telemetry, log, parse, namespace, nodeId: node } = this
    return { database, transactions, watch, telemetry, log, parse, namespace, node }
  }

  /** @internal */
  fetchedLeases(c: Consumption): FetchedLeases {
    const leases = new FetchedLeases(c)
    this.fetched.push(leases)
    return leases
  }

  private register(component: Component): void {
    this.components.push(component)
    this.wake()
  }

  private encoder(): Encoder {
    return {
      namespace: this.namespace,
      payload: (value, what) => encodePayload(this.stringify, value, what),
      metadata: (given) => {
        const all: Record<string, unknown> = { producer: this.nodeId, ...this.telemetry.origin(given), ...given }
        if (all['producer'] == null) delete all['producer']
        return Object.keys(all).length > 0 ? JSON.stringify(all) : null
      },
    }
  }

  private async sending(what: 'publish' | 'enqueue', streams: string[], run: () => Promise<bigint[]>): Promise<bigint[]> {
    if (streams.length === 0) return []
    const ids = await this.telemetry.send(what, streams, run)
    this.watch.announce(what === 'publish' ? 'events' : 'jobs')
    return ids
  }

  /** Repeats a function after temporary errors, until the signal comes. */
  private async retried(stop: AbortSignal, label: string, run: () => Promise<void>): Promise<void> {
    const trouble = new Trouble(this.log, 'trouble with the database', { for: label })
    try {
      await retry({ outages: true, signal: stop, until: () => stop.aborted, trouble }, run)
    } catch (error) {
      if (!stop.aborted || isFinal(error) || !(isOutage(error) || error instanceof Moved)) throw error
    }
  }

  private async registerNode(): Promise<void> {
    const { displayName, description, nodeMetadata } = this.options
    await this.database.call('register_node(text, text, text, text, jsonb)',
      [this.namespace, this.nodeId, displayName ?? null, description ?? null, nodeMetadata ? JSON.stringify(nodeMetadata) : null])
  }

  /** Records that this node is alive. A node that upkeep has removed, perhaps because its machine was suspended, registers again. */
  private async sendHeartbeats(stop: AbortSignal): Promise<void> {
    const trouble = new Trouble(this.log, 'cannot send a heartbeat yet')
    for (;;) {
      await pause(heartbeatInterval, stop)
      if (stop.aborted) return
      try {
        const known = await this.database.value('touch_node_heartbeat(text)', [this.nodeId])
        if (known !== 't') {
          await this.registerNode()
          for (const group of this.groups.values()) if (group.hasHandlers) await group.recordHandlers()
        }
        trouble.over()
      } catch (error) {
        trouble.report(error)
      }
    }
  }
}

/** Calls a function, again and again while the server starts, recovers from a crash or shuts down. */
async function onceReady<T>(log: Logger, call: () => Promise<T>): Promise<T> {
  for (let waits = 0; ; waits++) {
    try {
      return await call()
    } catch (error) {
      if (!isStarting(error)) throw error
      if (waits === 0) log.warn('waiting for the database: it starts, recovers or shuts down, and accepts no connections yet', { error })
      await pause(500)
    }
  }
}

function newNodeId(): string {
  const host = hostname().split('.')[0] ?? ''
  return `${host === '' || host.length > 63 ? 'host' : host}-${process.pid}-${randomBytes(4).toString('hex')}`
}
