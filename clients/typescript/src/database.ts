import net from 'node:net'
import pg from 'pg'
import { type Confirmed, confirming } from './confirm.js'
import { isCollision, isFinal, isOutage, PosthornError, translate, Unconfirmed } from './errors.js'
import type { Logger, Trouble } from './log.js'
import { Monitor } from './monitor.js'
import { pause, troubleWait } from './wait.js'

/** What runs SQL: a pool, client or transaction of `pg`, or anything that has their method `query`. */
export interface DB {
  query(statement: { text: string; values: unknown[] }): Promise<{ rows: any[] }>
}

/** A row whose values are texts, as the server sends them. */
export type Row = (string | null)[]

/** The deadline of a statement. */
export const statementTime = 30_000

/** The deadline of a statement that a lease depends on: it leaves time for a retry before the lease expires. */
export function leaseTime(leaseFor: number): number {
  return Math.min(Math.max(leaseFor / 3, 5000), statementTime)
}

/** A duration in milliseconds, as Postgres reads it. */
export function period(milliseconds: number): string {
  return `${Math.round(Math.max(milliseconds, 0) * 1000)} microseconds`
}

/** Replaces zero characters, which no text in Postgres can contain. */
export function storable(text: string): string {
  return text.replaceAll('\0', '\uFFFD')
}

const texts = { getTypeParser: () => (value: unknown) => value } as unknown as pg.CustomTypesConfig

/** Connections for Posthorn's own statements, each of which has a deadline. */
export class Database {
  readonly monitor: Monitor
  private readonly pool: pg.Pool

  constructor(private readonly settings: pg.PoolConfig, connections: number, log: Logger) {
    this.pool = openPool(settings, connections)
    this.monitor = new Monitor((limit) => this.connect(limit), log)
    this.monitor.watchPool(this.pool)
  }

  /** Runs a statement in a transaction of its own. */
  async query(verb: string, text: string, values: unknown[] = [], limit = statementTime): Promise<Row[]> {
    let client: pg.PoolClient | undefined
    let broken = false
    try {
      client = await this.pool.connect()
      return await queryTexts(client, text, values, limit)
    } catch (error) {
      broken = isOutage(error)
      if (broken) (client as { skipHost?: () => void } | undefined)?.skipHost?.()
      if (client && isDeadline(error)) cancel(client)
      throw translate(verb, error)
    } finally {
      client?.release(broken)
    }
  }

  /** Calls a function of the schema, by its name and the types of its arguments, and returns some columns of its rows. */
  call(signature: string, values: unknown[] = [], limit = statementTime, columns = '*'): Promise<Row[]> {
    const [name, types] = signature.slice(0, -1).split('(') as [string, string]
    const parameters = types.split(', ').filter((type) => type).map((type, i) => `$${i + 1}::${type}`)
    return this.query(name.replaceAll('_', ' '), `select ${columns} from posthorn.${name}(${parameters.join(', ')})`, values, limit)
  }

  /**
   * Calls a function of the schema that hands out work. A claim that no standby confirms is as good as any other: a failover
   * may forget every claim, since none waits for its own sake, and then the work is handed out again.
   */
  async claim(signature: string, values: unknown[], limit: number, columns: string): Promise<Row[]> {
    try {
      return await this.call(signature, values, limit, columns)
    } catch (error) {
      if (error instanceof Unconfirmed) return (error.result as { rows: Row[] }).rows
      throw error
    }
  }

  /** Calls a function of the schema that returns one value. */
  async value(signature: string, values: unknown[] = [], limit = statementTime): Promise<string | null> {
    return (await this.call(signature, values, limit))[0]?.[0] ?? null
  }

  /** Opens a connection that is not one of the pool. */
  async connect(limit = this.settings.connectionTimeoutMillis): Promise<pg.Client> {
    const { settings } = this
    const client = new (settings.Client as unknown as typeof pg.Client)({ ...settings, password: settings.password, connectionTimeoutMillis: limit })
    client.on('error', () => undefined) // its statements fail
    await client.connect()
    return client
  }

  async close(): Promise<void> {
    this.monitor.close()
    await this.pool.end()
  }
}

/** A pool that leaves a connection to an old primary when it would be used again. */
class CurrentPool extends pg.Pool {
  override connect(callback?: any): any {
    if (!callback) {
      return new Promise((resolve, reject) => {
        this.connect((error: unknown, client: pg.PoolClient) => (error ? reject(error) : resolve(client)))
      })
    }
    super.connect((error, client, done) => {
      if (!(client as unknown as Confirmed | undefined)?.isOld()) return callback(error, client, done)
      done(true)
      this.connect(callback)
    })
  }
}

/** Opens a pool whose broken connections do not end the process: their statements fail. */
export function openPool(settings: pg.PoolConfig, max: number): pg.Pool {
  const pool = new CurrentPool({ ...settings, password: settings.password, max })
  pool.on('connect', (client) => client.on('error', () => undefined))
  pool.on('error', () => undefined)
  return pool
}

/**
 * Runs a statement with a deadline, and returns its rows as texts. With a name the connection prepares it, and keeps its plan.
 * Of several statements without values it returns the rows of the last one.
 */
export async function queryTexts(client: pg.ClientBase, text: string, values: unknown[], limit: number, name?: string): Promise<Row[]> {
  const statement = { name, text, values, rowMode: 'array' as const, types: texts, query_timeout: limit }
  const result = (await client.query(statement)) as unknown as { rows: Row[] } | { rows: Row[] }[]
  return (Array.isArray(result) ? result.at(-1)! : result).rows
}

const cancelTime = 2000

/** Lets the server end the statement of a connection that is given up: it would go on, with its locks. */
function cancel(client: pg.ClientBase): void {
  if ((client as unknown as Confirmed).mayWait()) return // the request would end the wait of a commit, and make it visible
  const { host, port, processID, secretKey } = client as unknown as { host: string; port: number; processID: number; secretKey: number }
  const request = Buffer.alloc(16)
  for (const [i, part] of [16, 80877102, processID, secretKey].entries()) request.writeInt32BE(part | 0, 4 * i)
  const socket = host.startsWith('/') ? net.connect(`${host}/.s.PGSQL.${port}`) : net.connect(port, host)
  socket.on('error', () => undefined)
  socket.setTimeout(cancelTime, () => socket.destroy())
  socket.end(request)
}

/** Whether a statement has used up its deadline. */
export function isDeadline(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout'
}

const connectTime = 10_000
const connectTimeOfOne = 5000 // for each of several hosts

/**
 * The settings of connections. The URL may name several hosts: when one does not answer, or is a standby, the next
 * connection goes to the next one.
 */
export function settingsOf(databaseUrl: string, applicationName?: string): pg.PoolConfig {
  const parts = /^(postgres(?:ql)?:\/\/(?:[^/@]*@)?)([^/?]*)(.*)$/s.exec(databaseUrl)
  if (!parts) {
    throw new PosthornError('invalid', 'the database URL is not valid', // which is left out, as it has a password
      'It looks like postgres://user:password@host:5432/database, with special characters in the password percent-encoded.')
  }
  const urls = parts[2]!.split(',').map((host) => parts[1] + host + parts[3])
  let used = 0
  class HostClient extends confirming(pg.Client, urls) {
    private readonly turn = used

    constructor(config: pg.ClientConfig) {
      super({ ...config, password: config.password, connectionString: urls[used % urls.length]! })
      this.on('error', () => this.skipHost()) // the connection has broken
    }

    override connect(callback?: any): any {
      const skip = (error: unknown) => {
        if (error) this.skipHost()
        return error
      }
      if (callback) return super.connect((error: Error) => callback(skip(error)))
      return super.connect().catch((error: unknown) => {
        throw skip(error)
      })
    }

    /** Lets the next connection go to the next host. */
    skipHost(): void {
      if (this.turn === used && urls.length > 1) used++
    }
  }
  return {
    connectionString: urls[0]!, application_name: applicationName ?? 'posthorn', Client: HostClient,
    connectionTimeoutMillis: urls.length > 1 ? connectTimeOfOne : connectTime, keepAlive: true, idleTimeoutMillis: 60_000,
  } as unknown as pg.PoolConfig
}

/** The settings of a pool of the program. */
export function settingsOfPool(pool: pg.Pool): pg.PoolConfig {
  const options = pool.options
  return {
    ...options, password: options.password, Client: confirming((pool as unknown as { Client: typeof pg.Client }).Client),
    connectionTimeoutMillis: options.connectionTimeoutMillis || connectTime,
  } as pg.PoolConfig
}

/** Says how long and how often a statement is repeated. */
export interface Patience {
  until?: () => boolean // whether to stop
  signal?: AbortSignal // ends the pause in which it comes
  collisions?: number // most attempts that collide with other transactions
  outages?: boolean // whether to repeat after errors of the database that pass, after a pause
  trouble?: Trouble
}

/** Repeats a function after temporary errors. */
export async function retry<T>(patience: Patience, run: () => Promise<T>): Promise<T> {
  for (let collisions = 0; ;) {
    try {
      const result = await run()
      patience.trouble?.over()
      return result
    } catch (error) {
      if (isCollision(error) && ++collisions !== patience.collisions) {
        await pause(Math.random() * 10 * Math.min(collisions, 100))
      } else if (!patience.outages || isFinal(error) || patience.until?.()) {
        throw error
      } else {
        patience.trouble?.report(error)
        await pause(troubleWait, patience.signal?.aborted ? undefined : patience.signal)
      }
      if (patience.until?.()) throw error
    }
  }
}

