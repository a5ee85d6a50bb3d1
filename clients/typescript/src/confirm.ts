import type pg from 'pg'
import { sqlState, Unconfirmed } from './errors.js'

type ClientClass = new (config?: any) => pg.Client

/** The function of Postgres that warns of a wait for a synchronous standby that was cancelled. The text depends on the server's language. */
const waitFunction = 'SyncRepWaitForLSN'

// Facts that each role may read. A standby that is read has no timeline of its own.
const identitySQL = `
  select s.system_identifier::text,
    case when pg_catalog.pg_is_in_recovery() then '' else pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) end,
    pg_catalog.current_setting('synchronous_standby_names')
  from pg_catalog.pg_control_system() s`

/** The clusters that have had synchronous standbys, by system identifier. */
const synchronous = new Set<string>()

/**
 * The highest timeline that this process has seen of each cluster, by system identifier and address. A timeline counts for
 * all addresses of the URL through which it was seen. A tenant that has moved leaves two primaries of one cluster, at
 * different addresses, and a program may use both.
 */
const timelines = new Map<string, number>()

function placeOf(client: pg.Client): string {
  return `${client.host}:${client.port}/${client.database}`
}

/** A connection that knows its server. */
export interface Confirmed {
  /** Whether commits may wait for a standby: a cancel request would end that wait, and make them visible. */
  mayWait(): boolean
  /** Whether its server is an old primary: this process has seen a newer one since. It asks nobody. */
  isOld(): boolean
}

/**
 * Makes connections whose statements fail where a commit's wait for a synchronous standby was cancelled: the server reports
 * success with a warning, and a failover may lose the transaction. They also refuse a primary with a lower timeline than
 * this process has seen: it is an old one, and a failover has happened since. `urls` has one for each host, if there are several.
 */
export function confirming<C extends ClientClass>(Base: C, urls: string[] = []): C {
  return class extends (Base as ClientClass) implements Confirmed {
    private cancelledWait = false
    private system = ''
    private timeline = 0 // 0 of a standby
    private keys: string[] = [] // of timelines

    constructor(config?: any) {
      super(config)
      this.on('notice', (notice) => {
        if (notice.routine === waitFunction) this.cancelledWait = true
      })
    }

    override connect(callback?: any): any {
      const connected = super.connect().then(() => this.identify())
      if (!callback) return connected
      connected.then(() => callback(null, this), callback)
    }

    override query(...given: any[]): any {
      const callback = given.at(-1)
      if (typeof callback === 'function') {
        given[given.length - 1] = (error: unknown, result: unknown) => {
          if (this.wasCancelled() && !error) callback(new Unconfirmed(result))
          else callback(error, result)
        }
      }
      const answer = (super.query as (...args: any[]) => any).apply(this, given)
      if (!(answer instanceof Promise)) return answer
      return answer.then((result) => {
        if (this.wasCancelled()) throw new Unconfirmed(result)
        return result
      })
    }

    mayWait(): boolean {
      return synchronous.has(this.system)
    }

    isOld(): boolean {
      return this.timeline > 0 && this.timeline < this.newest()
    }

    private newest(): number {
      return Math.max(...this.keys.map((key) => timelines.get(key)!))
    }

    /** Reports once that a wait was cancelled. */
    private wasCancelled(): boolean {
      const was = this.cancelledWait
      this.cancelledWait = false
      return was
    }

    private places(): string[] {
      return urls.length ? urls.map((connectionString) => placeOf(new Base({ connectionString }))) : [placeOf(this)]
    }

    private refusal(): Error {
      return new Error(`the database at ${this.host}:${this.port} is an old primary, of timeline ${this.timeline}: this process has seen timeline ${this.newest()} of the same cluster`)
    }

    private async identify(): Promise<void> {
      let row: string[]
      try {
        row = ((await super.query({ text: identitySQL, rowMode: 'array' } as any)) as unknown as { rows: string[][] }).rows[0]!
      } catch (error) {
        if (sqlState(error)) return // the server does not tell
        throw error
      }
      const [system, hex, names] = row as [string, string, string]
      this.timeline = parseInt(hex || '0', 16)
      this.keys = this.places().map((place) => `${system} ${place}`)
      this.keys.forEach((key) => timelines.set(key, Math.max(timelines.get(key) ?? 0, this.timeline)))
      if (names) synchronous.add(system)
      this.system = system
      if (this.isOld()) {
        void this.end().catch(() => undefined)
        throw this.refusal()
      }
    }
  } as unknown as C
}
