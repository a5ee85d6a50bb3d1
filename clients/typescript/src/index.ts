/**
 * The client of Posthorn, an event platform inside PostgreSQL. {@link Posthorn} publishes and handles the events and jobs
 * of one namespace.
 */
export { Admin, type DeadLetter, type DeadLetterFilter, type JobFilter, type JobState, type JobStatus } from './admin.js'
export type { DB } from './database.js'
export { type ErrorCode, EventErrors, Moved, Permanent, PosthornError, RetryAfter, Snooze } from './errors.js'
export type { Event, Origin, Parse } from './event.js'
export type { Delivery, FetchOptions } from './fetch.js'
export { type Filter, type Group, type GroupOptions, type Handler, type Middleware, type Moment, type Patterns, subscribed, type Subscription } from './group.js'
export type { HandlerContext } from './hold.js'
export type { Job } from './job.js'
export type { Logger } from './log.js'
export { type Options, Posthorn } from './posthorn.js'
export { type Message, type NewJob, raw, type RawJSON } from './publish.js'
export type { Reader, ReadOptions } from './read.js'
export type { Schedule } from './schedule.js'
export type { JobHandler, WorkOptions } from './work.js'
