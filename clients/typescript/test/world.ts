import { fork, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import type { TestContext } from 'node:test'
import pg from 'pg'
import { type DeadLetter, type Options, Posthorn, type PosthornError } from '../src/index.js'

export const databaseUrl = process.env['POSTHORN_DATABASE_URL'] ?? ''

/** A fresh name for a namespace, group or table. */
export function fresh(prefix: string): string {
  return `${prefix}_${randomBytes(6).toString('hex')}`
}

// The tests of a file share connections, since some ask again and again. The process ends although they are open.
const pool = new pg.Pool({ connectionString: databaseUrl, allowExitOnIdle: true })
pool.on('error', () => undefined)

/** Runs SQL of a test. */
export async function sql(text: string, values: unknown[] = []): Promise<any[]> {
  return (await pool.query(text, values)).rows
}

/** Makes a namespace, and returns its name. */
export async function namespace(): Promise<string> {
  const name = fresh('ts')
  await sql('select posthorn.define_namespace($1)', [name])
  return name
}

/** Opens a client, in a namespace of its own unless one is given. It is closed with the test. */
export async function open(t: TestContext, options: Partial<Options> = {}): Promise<Posthorn> {
  const logger = { info: () => undefined, warn: () => undefined, error: () => undefined }
  const given = { namespace: options.namespace ?? (await namespace()), logger, ...options }
  const client = await Posthorn.open(given.pool ? given : { databaseUrl, ...given })
  t.after(async () => {
    await stops.get(client)?.()
    await client.close()
  })
  return client
}

const stops = new WeakMap<Posthorn, () => Promise<void>>()

/** Runs a client until `stop` is called or the test ends. */
export function run(client: Posthorn): { stop: () => Promise<void> } {
  const signal = new AbortController()
  const running = client.run(signal.signal)
  running.catch(() => undefined)
  const stop = () => {
    signal.abort()
    return running
  }
  stops.set(client, stop)
  return { stop }
}

/** Waits until a condition holds. The longer it has waited, the rarer it looks. */
export async function until(what: string, condition: () => unknown, seconds = Number(process.env['POSTHORN_TEST_WAIT'] ?? 60)): Promise<void> {
  const began = Date.now()
  while (!(await condition())) {
    const waited = Date.now() - began
    if (waited > seconds * 1000) throw new Error(`waited in vain: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, Math.min(10 + waited / 10, 50)))
  }
}

/** The dead letters of a group; none while it does not exist. */
export async function deadLetters(client: Posthorn, group: string): Promise<DeadLetter[]> {
  return client.admin.deadLetters(group).catch((error: PosthornError) => {
    if (error.code !== 'not_found') throw error
    return []
  })
}

/** A promise and the function that resolves it. */
export function gate<T = void>(): { promise: Promise<T>; open: (value: T) => void } {
  let open!: (value: T) => void
  const promise = new Promise<T>((resolve) => (open = resolve))
  return { promise, open }
}

/** Makes a table for effects of handlers, which is dropped with the test. */
export async function effects(t: TestContext): Promise<string> {
  const table = fresh('effects')
  await sql(`create table ${table} (id bigserial primary key, event bigint, note text)`)
  t.after(() => sql(`drop table ${table}`))
  return table
}

/** Starts a process of the program worker.ts, with a role and its arguments. */
export function child(t: TestContext, role: string, ...args: string[]): ChildProcess {
  const process_ = fork(fileURLToPath(new URL('worker.js', import.meta.url)), [role, ...args], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  t.after(() => process_.kill('SIGKILL'))
  return process_
}

/** Kills a process, and waits for its end. */
export async function kill(process_: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => process_.once('exit', resolve))
  if (process_.exitCode === null && process_.signalCode === null) {
    process_.kill('SIGKILL')
    await ended
  }
}
