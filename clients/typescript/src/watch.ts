import type pg from 'pg'
import type { Confirmed } from './confirm.js'
import { type Database, period, queryTexts, type Row } from './database.js'
import type { Trouble } from './log.js'
import { Bell, pause, sharedController, troubleWait } from './wait.js'

/** A kind of news: events were published, or jobs became ready. */
export type News = 'events' | 'jobs'

// After a transaction has written events or jobs, the watch asks all the time for a while, since it may not have
// committed; then the pauses double up to maxPause. Each question lets the server look every millisecond for serverWait.
// Of the processes of a database, one asks so for all: it notifies the others of news at once, and they ask twice a second
// only. The SQL function watch_in_turn has the protocol.
const minPause = 2
const maxPause = 50
const restPause = 200 // after restAfter without news
const restAfter = 60_000
const busyPause = 5 // of a process that asks for others, between news for which it has no time itself
const serverWait = 10
const activeFor = 1000
const notifyInterval = 500 // shorter than activeFor, so that listeners stay active
const pollTime = 5000

/** The part of a connection in the watch of a database by several processes: null if it watches for itself. */
type Turn = 'alone' | 'for all' | 'follows' | null

/** Rings bells when there may be news. While all of them have rung and nobody has come, it does not ask the database. */
export class Watch {
  private readonly bells = new Map<Bell, News>()
  private readonly stop = sharedController()
  private running: Promise<void> | undefined
  private readonly read = new Bell()
  private notifying = false
  private notifyAgain = false

  constructor(
    private readonly database: Database,
    private readonly trouble: Trouble,
    private readonly followPause = 500, // between two questions of a process while another one asks for all
  ) {}

  /** Adds a bell for a kind of news. It has rung already, because there may be news from before. */
  subscribe(kind: News): Bell {
    const bell = new Bell(true)
    this.bells.set(bell, kind)
    this.running ??= this.run()
    this.read.ring()
    return bell
  }

  unsubscribe(bell: Bell): void {
    this.bells.delete(bell)
  }

  /** Waits for news on a bell, or until a time has passed. */
  async await(bell: Bell, milliseconds: number, signal?: AbortSignal): Promise<void> {
    const waited = bell.wait(milliseconds, signal)
    this.read.ring()
    await waited
  }

  /** Rings the bells of this process, and notifies other processes: one notification stands for many events. */
  announce(kind: News): void {
    this.ring(kind)
    this.notifyAgain = true
    if (!this.notifying && !this.stop.signal.aborted) void this.notify()
  }

  async close(): Promise<void> {
    this.stop.abort()
    await this.running
  }

  private ring(kind: News): void {
    for (const [bell, wanted] of this.bells) {
      if (wanted === kind) bell.ring()
    }
  }

  private async notify(): Promise<void> {
    this.notifying = true
    while (this.notifyAgain && !this.stop.signal.aborted) {
      this.notifyAgain = false
      // It does not wait for the disk. One that is lost only delays others.
      await this.database.query('notify', "select set_config('synchronous_commit', 'off', true), pg_notify('posthorn', '')", [], pollTime)
        .catch(() => undefined)
      await pause(notifyInterval, this.stop.signal)
    }
    this.notifying = false
  }

  private async run(): Promise<void> {
    while (!this.stop.signal.aborted) {
      try {
        await this.watch()
      } catch (error) {
        if (this.stop.signal.aborted) return
        this.trouble.report(error) // workers look for work by themselves meanwhile
        await pause(troubleWait, this.stop.signal)
      }
    }
  }

  private async watch(): Promise<void> {
    const client = await this.database.connect()
    try {
      const [row] = await queryTexts(client, 'select pg_backend_pid()', [], pollTime)
      // Poolers return ids of their own, and have no LISTEN.
      const direct = Number(row![0]) === processIdOf(client)
      if (direct) await client.query({ text: 'listen posthorn', query_timeout: pollTime } as pg.QueryConfig)
      await this.poll(client, direct)
    } finally {
      await client.end()
    }
  }

  private async poll(client: pg.Client, direct: boolean): Promise<void> {
    const notified = new Bell()
    client.on('notification', ({ processId, payload }) => {
      if (processId === processIdOf(client)) return
      notified.ring()
      this.tell(payload !== 'jobs', payload !== 'events') // that of a client stands for both
    })
    let state: Row = [null, null, null]
    let turn: Turn = null
    let drawn: string | null = null
    let active = 0
    let wait = minPause
    let found = true
    for (;;) {
      await this.rest(turn, found)
      const follows = turn === 'follows'
      const onServer = direct && !follows && wait === minPause ? serverWait : 0
      const noticed = notified.hasRung
      if (follows) await pause(this.followPause, this.stop.signal)
      else if (onServer === 0 || noticed || turn === 'for all' && found) await notified.wait(wait, this.stop.signal)
      if (this.stop.signal.aborted) return
      if ((client as unknown as Confirmed).isOld()) throw new Error('the watch was at an old primary, and looks for the new one')
      if (follows && this.allHaveRung()) continue
      const [row] = await queryTexts(client, `
        select n.seen::text, n.writers::text, n.job_news, n.events, n.jobs, n.drawn, t.turn
        from posthorn.await_news($1::text::pg_snapshot, $2::text::pg_snapshot, $3::bigint, $4::text::interval) n,
          ${direct ? 'posthorn.watch_in_turn($5::text, n.events, n.jobs)' : '(select $5::text)'} t(turn)
        where $4::text::interval > '0' or $5::text = 'follows' or posthorn.may_have_news($1::text, $3::bigint, $6::bigint)`,
        [...state, period(onServer), turn, drawn], pollTime, direct ? 'posthorn_watch' : undefined)
      this.trouble.over()
      found = false
      if (row) {
        const [seen, writers, jobNews, events, jobs, last] = row as [string, string, string, string, string, string]
        if (last !== drawn || jobNews !== state[2]) active = performance.now()
        state = [seen, writers, jobNews]
        turn = row[6] as Turn
        drawn = last
        found = events === 't' || jobs === 't'
        this.tell(events === 't', jobs === 't')
      }
      if (noticed) active = performance.now()
      const quiet = performance.now() - active
      wait = quiet < activeFor ? minPause : quiet < restAfter ? Math.min(2 * wait, maxPause) : restPause
    }
  }

  private tell(events: boolean, jobs: boolean): void {
    if (events) this.ring('events')
    if (jobs) this.ring('jobs')
  }

  /** Waits while all bells have rung and nobody has come: no longer than others may need news, or may have begun to follow. */
  private async rest(turn: Turn, found: boolean): Promise<void> {
    if (turn === 'follows' || turn === 'for all' && !found) return
    const most = turn === 'for all' ? busyPause : turn === 'alone' ? this.followPause : undefined
    const began = performance.now()
    for (let left = most; this.allHaveRung() && !this.stop.signal.aborted && !(left! <= 0);) {
      await this.read.wait(left, this.stop.signal)
      if (most !== undefined) left = began + most - performance.now()
    }
  }

  private allHaveRung(): boolean {
    for (const bell of this.bells.keys()) {
      if (!bell.hasRung) return false
    }
    return true
  }
}

/** The id of the process of Postgres that serves a connection, or the one that a pooler gives. */
function processIdOf(client: pg.Client): number {
  return (client as unknown as { processID: number }).processID
}
