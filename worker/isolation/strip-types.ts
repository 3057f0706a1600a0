/** The process that removes the types from the code of isolated processes, and ends: JSON with the sources in, JSON with the results out. */
import { stripTypeScriptTypes } from 'node:module'
import { json } from 'node:stream/consumers'

const sources = (await json(process.stdin)) as string[]
process.stdout.write(JSON.stringify(sources.map((source) => stripTypeScriptTypes(source))))
