// Says what the tests lack.
import pg from 'pg'
import { databaseUrl } from './world.js'

async function missing(): Promise<string | undefined> {
  if (databaseUrl === '') return 'set POSTHORN_DATABASE_URL to a database in which posthorn migrate has run'
  const client = new pg.Client({ connectionString: databaseUrl, connectionTimeoutMillis: 10_000 })
  try {
    await client.connect()
    await client.query("select posthorn.namespace_id('default')")
    return undefined
  } catch (error) {
    return `POSTHORN_DATABASE_URL needs a database in which posthorn migrate has run: ${(error as Error).message}`
  } finally {
    await client.end().catch(() => undefined)
  }
}

const problem = await missing()
if (problem) {
  console.error(problem)
  process.exit(1)
}
