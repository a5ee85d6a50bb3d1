import type pg from 'pg'
import { PosthornError, Unconfirmed } from './errors.js'
import type { Logger } from './log.js'
import { streamOf } from './monitor.js'
import { Slots } from './wait.js'

/** Statements by which a handler would end its transaction. */
const ending = /^\s*(?:--.*\n\s*)*(?:begin|start\s+transaction|commit|end|abort|prepare\s+transaction|rollback(?!\s+(?:work\s+|transaction\s+)?to\b))\b/i

/** A transaction of a handler. */
export class Transaction {
  /** What the handler gets: the client, which cannot end the transaction, and fails once the handler has returned. */
  readonly client: pg.ClientBase
  private over = false
  private isBroken = false
  private isCommitted = false
  private readonly onError = () => (this.isBroken = true)

  constructor(private readonly pooled: pg.PoolClient, private readonly released: () => void, private readonly log: Logger) {
    pooled.on('error', this.onError)
    this.client = new Proxy<pg.ClientBase>(pooled, {
      get: (target, name) => {
        if (name === 'query') return this.query
        if (name === 'release' || name === 'end' || name === 'connect') return this.refuse
        const value = Reflect.get(target, name, target)
        return typeof value === 'function' ? value.bind(target) : value
      },
    })
  }

  /** Ends the access of the handler. */
  close(): void {
    this.over = true
  }

  /** Gives the handler of the next event access, after a commit that has begun another transaction. */
  reopen(): void {
    this.over = false
  }

  /** Runs statements of Posthorn, without parameters, in one round trip. */
  async run(statements: string, limit: number): Promise<pg.QueryResult[]> {
    const result = await this.pooled.query({ text: statements, query_timeout: limit } as pg.QueryConfig).catch((error: unknown) => {
      if (!(error instanceof Unconfirmed)) throw error
      this.log.warn('a transaction of a handler is committed, and a failover may lose it', { error: error.message })
      return error.result as pg.QueryResult
    })
    return (Array.isArray(result) ? result : [result]) as pg.QueryResult[]
  }

  /** Runs the last statement of the transaction, and commits it. */
  async commitAfter(text: string, values: unknown[], limit: number): Promise<void> {
    await this.pooled.query({ text, values, query_timeout: limit } as pg.QueryConfig)
    const [result] = await this.run('commit', limit)
    if (result?.command === 'ROLLBACK') throw swallowed()
    this.isCommitted = true
  }

  /** Rolls back, and gives the connection back. Returns whether it works. */
  async end(limit: number): Promise<boolean> {
    if (!this.isBroken && !this.isCommitted) await this.run('rollback', limit).catch(this.onError)
    this.release()
    return !this.isBroken
  }

  release(): void {
    this.pooled.removeListener('error', this.onError)
    this.pooled.release(this.isBroken)
    this.released()
  }

  /** Breaks the connection, so that a statement of the handler fails at once. */
  break(): void {
    this.isBroken = true
    streamOf(this.pooled).destroy()
  }

  private readonly refuse = (): Promise<never> => Promise.reject(new PosthornError('refused',
    'this transaction is committed or rolled back by whether the handler throws an error', 'Throw an error to roll it back.'))

  private readonly query = (statement: unknown, ...rest: unknown[]): unknown => {
    if (this.over) return Promise.reject(new PosthornError('refused', 'the transaction has ended, because its handler has returned', 'Await each statement.'))
    const text = typeof statement === 'string' ? statement : (statement as { text?: unknown } | null)?.text
    if (typeof text === 'string' && ending.test(text)) return this.refuse()
    return (this.pooled.query as (...args: unknown[]) => unknown).call(this.pooled, statement, ...rest)
  }
}

/** The error of a handler that goes on after a statement has failed. */
export function swallowed(): PosthornError {
  return new PosthornError('refused', 'a statement failed in the transaction, and the handler threw no error',
    'Throw its error, or use a savepoint.')
}

/** The connections that a pool needs: one for a transaction of a handler, and one that the handler takes beside it. */
export const leastConnections = 2

/**
 * Runs the transactions of handlers. They use at most half of the pool's connections: handlers that take another
 * connection of the pool inside of their transactions would otherwise wait for each other.
 */
export class Transactions {
  private readonly slots: Slots

  constructor(private readonly pool: pg.Pool, private readonly log: Logger) {
    this.slots = new Slots(Math.max(1, Math.floor((pool.options.max ?? 10) / 2)))
  }

  /** Waits for a connection, and begins a transaction. */
  async begin(limit: number, signal?: AbortSignal): Promise<Transaction> {
    await this.slots.acquire(signal)
    let pooled: pg.PoolClient
    try {
      pooled = await connectWithin(this.pool, limit)
    } catch (error) {
      this.slots.release()
      throw error
    }
    const tx = new Transaction(pooled, () => this.slots.release(), this.log)
    try {
      await tx.run('begin', limit)
      return tx
    } catch (error) {
      tx.break()
      tx.release()
      throw error
    }
  }
}

/** Takes a connection of a pool, which may have no deadline for that. */
function connectWithin(pool: pg.Pool, limit: number): Promise<pg.PoolClient> {
  return new Promise((resolve, reject) => {
    let late = false
    const timer = setTimeout(() => {
      late = true
      reject(new Error('timeout exceeded when trying to connect'))
    }, limit)
    pool.connect().then((client) => {
      clearTimeout(timer)
      if (late) client.release()
      else resolve(client)
    }, (error: unknown) => {
      clearTimeout(timer)
      reject(error)
    })
  })
}
