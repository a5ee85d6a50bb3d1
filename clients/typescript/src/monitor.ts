import type { EventEmitter } from 'node:events'
import pg from 'pg'
import { queryTexts } from './database.js'
import type { Logger } from './log.js'
import { pause } from './wait.js'

const probeAfter = 5000 // the time that a connection waits before its server is probed
const checkEvery = 1000
const longestPause = 60_000 // between two probes for the sake of one statement
const probeTime = 4000
const answerTime = 1000 // an answer may be on its way so long once the server has sent it
const slowestUpload = 64 // bytes of a statement to the server in a millisecond

interface Stream {
  bytesRead: number
  bytesWritten: number
  destroy(): void
}

/** What a connection had received, and sent, when it last received something or began to wait. */
interface Waiting {
  received: number
  sent: number
  since: number
  answered: number // when the server last answered a probe while the connection waited; 0: not yet
}

/** Parts of a client of `pg` that its types lack. */
interface Internals {
  host: string
  port: number
  processID: number
  _activeQuery?: unknown
  activeQuery?: unknown // deprecated where the other one exists
}

function internals(client: pg.ClientBase): Internals {
  return client as unknown as Internals
}

/** The address of a connection's server. */
function addressOf(client: pg.ClientBase): string {
  return `${internals(client).host}:${internals(client).port}`
}

/** Whether a statement waits for its answer. A cursor, a copy or a connection that listens waits for the program. */
function awaitsAnswer(client: pg.ClientBase): boolean {
  const inside = internals(client)
  return ('_activeQuery' in inside ? inside._activeQuery : inside.activeQuery) instanceof pg.Query
}

/** The socket of a connection. */
export function streamOf(client: pg.ClientBase): Stream {
  return (client as unknown as { connection: { stream: Stream } }).connection.stream
}

/** Whether the socket of a connection can be seen. That of a client of pg-native cannot. */
function hasStream(client: pg.ClientBase): boolean {
  return Boolean((client as unknown as { connection?: { stream?: Stream } }).connection?.stream)
}

/** Breaks a connection: its statements fail. */
function breakOff(client: pg.ClientBase): void {
  client.on('error', () => undefined) // without a listener, the event would end the process
  streamOf(client).destroy()
}

/**
 * Notices when a server does not answer any more, for example because its host has died: the operating system would wait
 * for a quarter of an hour. When a connection has received nothing for a while, the monitor makes a new one. If the server
 * does not answer there either, nor meanwhile on another connection, the monitor breaks the connections that wait, and those that
 * are idle.
 *
 * A statement that goes on after an answer is checked again when it has waited as long again, and once a minute in the end: each
 * probe costs the server a process. While all that wait are such statements, a second probe must get no answer, too.
 *
 * If the server answers, a single connection may have been forgotten: a proxy hangs, or a firewall answers in place of the
 * server. Then the monitor asks the server about its backend. If that is gone, or waits for its client, the answer has been
 * lost on its way: the monitor ends the backend, which may hold locks, and breaks the connection.
 */
export class Monitor {
  private readonly waiting = new Map<pg.ClientBase, Waiting>() // connections in use
  private readonly idle = new Set<pg.ClientBase>()
  private readonly unwatch: (() => void)[] = []
  private timer: NodeJS.Timeout | undefined
  private probing = false
  private probed = 0
  private silences = 0 // probes in a row without an answer

  constructor(private readonly connect: (limit: number) => Promise<pg.Client>, private readonly log: Logger) {}

  /** Watches the connections of a pool until the monitor is closed. */
  watchPool(pool: pg.Pool): void {
    const forget = (client: pg.ClientBase) => {
      this.waiting.delete(client)
      this.idle.delete(client)
    }
    const listeners = {
      acquire: (client: pg.ClientBase) => {
        forget(client)
        if (hasStream(client)) this.waiting.set(client, beginning(client))
      },
      release: (_error: unknown, client: pg.ClientBase) => {
        forget(client)
        if (hasStream(client)) this.idle.add(client)
      },
      remove: forget,
      error: () => undefined, // the pool removes idle connections that break; without a listener, the event would end the process
    }
    const events: EventEmitter = pool
    const allow = (more: number) => { // many clients may share a pool; 0 is no limit
      if (events.getMaxListeners() > 0) events.setMaxListeners(events.getMaxListeners() + more)
    }
    allow(1)
    for (const [name, listener] of Object.entries(listeners)) events.on(name, listener)
    this.unwatch.push(() => {
      for (const [name, listener] of Object.entries(listeners)) events.off(name, listener)
      allow(-1)
    })
    this.timer ??= setInterval(() => this.check(), checkEvery).unref()
  }

  close(): void {
    clearInterval(this.timer)
    this.unwatch.forEach((end) => end())
  }

  private check(): void {
    for (const [client, state] of this.waiting) {
      if (streamOf(client).bytesRead !== state.received || !awaitsAnswer(client)) Object.assign(state, beginning(client))
    }
    const now = Date.now()
    const isDue = this.suspects().some((client) => {
      const { since, answered } = this.waiting.get(client)!
      return now - answered >= Math.min(answered - since, longestPause)
    })
    if (isDue && !this.probing && now - this.probed >= probeAfter / 2) void this.probe()
  }

  /** The connections whose statements have received nothing for a while. A long statement may still be on its way. */
  private suspects(): pg.ClientBase[] {
    const now = Date.now()
    return [...this.waiting].filter(([client, { received, sent, since }]) => {
      const { bytesRead, bytesWritten } = streamOf(client)
      return bytesRead === received && awaitsAnswer(client) && now - since >= probeAfter + (bytesWritten - sent) / slowestUpload
    }).map(([client]) => client)
  }

  private async probe(): Promise<void> {
    this.probing = true
    const began = (this.probed = Date.now())
    const suspects = this.suspects()
    const isNew = suspects.some((client) => this.waiting.get(client)!.answered === 0)
    const before = new Map([...this.waiting.keys(), ...this.idle].map((client) => [client, streamOf(client).bytesRead]))
    let client: pg.Client | undefined
    let isSilent = false
    try {
      client = await this.connect(probeTime)
    } catch (error) {
      isSilent = /timeout/i.test(String(error)) // another error is an answer: the other connections fail by themselves
    }
    try {
      this.silences = isSilent ? this.silences + 1 : 0
      if (isSilent && (isNew || this.silences > 1)) this.breakSilent(before)
      if (client) {
        for (const suspect of suspects) {
          const state = this.waiting.get(suspect)
          if (state && state.since <= began && addressOf(suspect) === addressOf(client)) state.answered = began
        }
        await this.endForgotten(client).catch(() => undefined) // the deadlines of statements remain
        void client.end().catch(() => undefined)
      }
    } finally {
      this.probing = false
    }
  }

  /**
   * Breaks the connections to servers from which nothing was received since. A busy server may be slow to accept a new one.
   * before has what each connection had received.
   */
  private breakSilent(before: Map<pg.ClientBase, number>): void {
    const heard = new Set([...before].filter(([client, received]) => streamOf(client).bytesRead !== received).map(([client]) => addressOf(client)))
    const silent = [...before.keys()].filter((client) => !heard.has(addressOf(client)) && (this.waiting.has(client) || this.idle.has(client)))
    if (silent.length === 0) return
    this.log.warn('the database does not answer; its connections are closed')
    silent.forEach(breakOff)
  }

  /** Breaks connections that the server has forgotten. It asks twice, so that an answer that is on its way arrives. */
  private async endForgotten(asker: pg.Client): Promise<void> {
    const { processID } = internals(asker)
    const [own] = await queryTexts(asker, 'select pg_backend_pid()', [], probeTime)
    if (Number(own![0]) !== processID) return // a pooler has ids of its own
    const onServer = (client: pg.ClientBase) => addressOf(client) === addressOf(asker)
    let forgotten = await this.resting(asker, this.suspects().filter(onServer))
    if (forgotten.length === 0) return
    await pause(answerTime)
    const still = new Set(this.suspects())
    forgotten = await this.resting(asker, forgotten.filter((client) => still.has(client)))
    if (forgotten.length === 0) return
    this.log.warn('connections to the database were forgotten on their way, and are closed', { connections: forgotten.length })
    forgotten.forEach(breakOff)
    await queryTexts(asker, endSQL, [forgotten.map((client) => internals(client).processID)], probeTime)
  }

  /** Those whose backends wait for their clients, or are gone. */
  private async resting(asker: pg.Client, clients: pg.ClientBase[]): Promise<pg.ClientBase[]> {
    if (clients.length === 0) return []
    const rows = await queryTexts(asker, restingSQL, [clients.map((client) => internals(client).processID)], probeTime)
    const resting = new Set(rows.map((row) => Number(row[0])))
    return clients.filter((client) => resting.has(internals(client).processID))
  }
}

// A standby says nothing of backends that it does not have: another standby may have them, under the same address.
const restingSQL = `
  select p.pid from unnest($1::int[]) p(pid)
  left join pg_catalog.pg_stat_activity a on a.pid = p.pid and a.usename = session_user and a.datname = current_database()
  where case when a.pid is null then not pg_catalog.pg_is_in_recovery() else a.wait_event in ('ClientRead', 'ClientWrite') end`

const endSQL = `
  select pg_catalog.pg_terminate_backend(a.pid) from pg_catalog.pg_stat_activity a
  where a.pid = any ($1::int[]) and a.usename = session_user and a.datname = current_database() and a.wait_event in ('ClientRead', 'ClientWrite')`

function beginning(client: pg.ClientBase): Waiting {
  const { bytesRead, bytesWritten } = streamOf(client)
  return { received: bytesRead, sent: bytesWritten, since: Date.now(), answered: 0 }
}
