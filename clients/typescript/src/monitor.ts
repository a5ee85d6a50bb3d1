import type pg from 'pg'
import type { Logger } from './log.js'

const probeAfter = 5000 // the time that a connection waits before its server is probed
const checkEvery = 1000
const probeTime = 4000

interface Stream {
  bytesRead: number
  destroy(): void
}

/** The socket of a connection. */
export function streamOf(client: pg.ClientBase): Stream {
  return (client as unknown as { connection: { stream: Stream } }).connection.stream
}

/**
 * Notices when a server does not answer any more, for example because its host has died: the operating system would wait
 * for a quarter of an hour. When a connection has received nothing for a while, the monitor makes a new one. If the server
 * does not answer there either, the monitor breaks the connections that wait.
 */
export class Monitor {
  private readonly waiting = new Map<pg.ClientBase, { received: number; since: number }>()
  private timer: NodeJS.Timeout | undefined
  private probing = false

  constructor(
    private readonly connect: (limit: number) => Promise<pg.Client>,
    private readonly log: Logger,
    private readonly onSilence: () => void,
  ) {}

  /** Watches a connection until the function is called that it returns. */
  watch(client: pg.ClientBase): () => void {
    this.waiting.set(client, { received: streamOf(client).bytesRead, since: Date.now() })
    this.timer ??= setInterval(() => this.check(), checkEvery).unref()
    return () => {
      this.waiting.delete(client)
    }
  }

  close(): void {
    clearInterval(this.timer)
  }

  private check(): void {
    const now = Date.now()
    let isLong = false
    for (const [client, state] of this.waiting) {
      const received = streamOf(client).bytesRead
      if (received !== state.received) Object.assign(state, { received, since: now })
      isLong ||= now - state.since >= probeAfter
    }
    if (isLong && !this.probing) void this.probe()
  }

  private async probe(): Promise<void> {
    this.probing = true
    const before = new Map([...this.waiting.keys()].map((client) => [client, streamOf(client).bytesRead]))
    try {
      const client = await this.connect(probeTime)
      void client.end().catch(() => undefined)
    } catch (error) {
      if (!/timeout/i.test(String(error))) return // an error is an answer: the other connections fail by themselves
      this.log.warn('the database does not answer; its connections are closed')
      for (const [client, received] of before) {
        if (streamOf(client).bytesRead === received) streamOf(client).destroy()
      }
      this.onSilence()
    } finally {
      this.probing = false
    }
  }
}
