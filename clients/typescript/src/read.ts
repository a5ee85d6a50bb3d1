import type { Database } from './database.js'
import { invalid, isFinal } from './errors.js'
import { Event, eventColumns, type Parse } from './event.js'
import type { Filter, Moment } from './group.js'
import type { Trouble } from './log.js'
import { checkPatterns, matches } from './route.js'
import { pause, troubleWait } from './wait.js'
import type { Watch } from './watch.js'

/** Selects the events of a {@link Reader}, and where it begins. */
export interface ReadOptions {
  /** Default: the beginning of the log. */
  from?: Moment
  /** The position of another reader, see {@link Reader.cursor}, in place of `from`. */
  cursor?: string
  /**
   * The id of the last event that the program has read, in place of `from` or `cursor`. Events that were published up to
   * about a second before that event may be read again, so that none is lost.
   */
  afterEvent?: bigint
  /** Waits for more events at the end of the log. Default: the reader stops there. */
  follow?: boolean
  filter?: Filter
  /** Ends a reader that follows. */
  signal?: AbortSignal
}

const batchSize = 1000
const idlePoll = 500

/** The instant of a moment, as Postgres reads it. */
export function instantOf(moment: Moment): string {
  if (moment === 'now') return 'infinity'
  return moment === 'beginning' ? '-infinity' : moment.toISOString()
}

/**
 * Reads the log of a namespace without a group: it writes nothing into the database, and the program stores the cursor. A
 * loop that was left may be started again, and continues after its last event.
 */
export class Reader implements AsyncIterable<Event> {
  private at: string | undefined
  private readonly passes: (e: Event) => boolean

  /** @internal */
  constructor(
    private readonly c: { database: Database; watch: Watch; parse: Parse; namespace: string; trouble: Trouble },
    private readonly options: ReadOptions,
  ) {
    if ([options.from, options.cursor, options.afterEvent].filter((start) => start !== undefined).length > 1) {
      throw invalid('from, cursor and afterEvent exclude each other', 'Give one of them, or none for the beginning of the log.')
    }
    this.at = options.cursor
    this.passes = passes(options.filter ?? {})
  }

  /**
   * The position after the last event of the loop; undefined before the first one. A reader that begins there skips no
   * event, also if transactions commit out of order.
   */
  get cursor(): string | undefined {
    return this.at
  }

  async *[Symbol.asyncIterator](): AsyncIterator<Event> {
    const { watch, trouble } = this.c
    const { follow, signal } = this.options
    const news = follow ? watch.subscribe('events') : undefined
    try {
      for (let betweenLooks = false; !signal?.aborted;) {
        try {
          this.at ??= await this.start()
          const { events, next, atEnd } = await this.next(this.at)
          trouble.over()
          for (const { event, cursor } of events) {
            this.at = cursor
            if (this.passes(event)) yield event
            if (signal?.aborted) return
          }
          this.at = next
          if (events.length === 0 && atEnd && betweenLooks) {
            if (!news) return
            await watch.await(news, idlePoll, signal)
          }
          betweenLooks = atEnd
        } catch (error) {
          if (!follow || isFinal(error)) throw error
          trouble.report(error)
          await pause(troubleWait, signal)
        }
      }
    } finally {
      if (news) watch.unsubscribe(news)
    }
  }

  private async start(): Promise<string> {
    const { afterEvent, from } = this.options
    const { database, namespace } = this.c
    return (await (afterEvent === undefined
      ? database.value('cursor_at(timestamptz)', [instantOf(from ?? 'beginning')])
      : database.value('cursor_after(text, bigint)', [namespace, afterEvent])))!
  }

  private async next(cursor: string): Promise<{ events: { event: Event; cursor: string }[]; next: string; atEnd: boolean }> {
    const rows = await this.c.database.call('read_log(text, text, int)', [this.c.namespace, cursor, batchSize], undefined,
      `${eventColumns}, 0, null, event_cursor, next_cursor, at_end`)
    const last = rows.at(-1)!
    return {
      events: rows.filter((row) => row[0] !== null).map((row) => ({ event: new Event(row, 0, this.c.parse), cursor: row[10]! })),
      next: last[11]!, atEnd: last[12] === 't',
    }
  }
}

/** Checks a filter, and returns a function that tells whether an event passes it. */
function passes(filter: Filter): (e: Event) => boolean {
  const { types, streams, keys, tagsAny, tagsAll } = filter
  checkPatterns([...(types ?? []), ...(streams ?? [])], 'filter')
  if (Object.values(filter).some((list) => Array.isArray(list) && list.length === 0)) {
    throw invalid('filter: an empty list lets nothing pass', 'Leave it out to let everything pass.')
  }
  return (e) =>
    (!types || types.some((p) => matches(p, e.type))) && (!streams || streams.some((p) => matches(p, e.stream))) &&
    (!keys || keys.includes(e.key)) && (!tagsAny || tagsAny.some((tag) => e.tags.includes(tag))) &&
    (!tagsAll || tagsAll.every((tag) => e.tags.includes(tag)))
}
