/** SQL of modules: their facts and their bytes in parts of 256 KiB. */
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { MAX_CHUNK_BYTES } from '../model/limits.ts'
import { fromModuleRow, type ModuleFacts, type ModuleRow } from './catalogue.ts'

export type NewModule = Omit<ModuleFacts, 'key'> & { bytes: Uint8Array }

/** The module with this digest, stored now or before, and locked until the transaction ends. */
export async function storeModule(tx: Transaction, module: NewModule): Promise<ModuleFacts> {
  return (await holdModule(tx, module.digest)) ?? (await insertModule(tx, module)) ?? (await storeModule(tx, module))
}

/** Undefined: it exists already. */
async function insertModule(tx: Transaction, module: NewModule): Promise<ModuleFacts | undefined> {
  const { rows } = await sql<{ key: number }>`
    INSERT INTO modules (digest, size_bytes, kind, runtime, exports, imports)
    VALUES (${module.digest}, ${module.sizeBytes}, ${module.kind}, ${module.runtime}, ${JSON.stringify(module.exports)}::jsonb,
      ${JSON.stringify(module.imports)}::jsonb)
    ON CONFLICT ON CONSTRAINT modules_digest_key DO NOTHING RETURNING key`.execute(tx)
  const [inserted] = rows
  if (inserted === undefined) return undefined
  for (let offset = 0, chunk = 0; offset < module.bytes.byteLength; offset += MAX_CHUNK_BYTES, chunk++) {
    const data = Buffer.from(
      module.bytes.buffer,
      module.bytes.byteOffset + offset,
      Math.min(MAX_CHUNK_BYTES, module.bytes.byteLength - offset),
    )
    await sql`INSERT INTO module_chunks (module_key, chunk, data) VALUES (${inserted.key}, ${chunk}, ${data})`.execute(
      tx,
    )
  }
  const { bytes: _bytes, ...facts } = module
  return { key: inserted.key, ...facts }
}

/** Locks it against removal until the transaction ends; undefined: it was just removed. */
async function holdModule(tx: Transaction, digest: string): Promise<ModuleFacts | undefined> {
  const { rows } = await sql<ModuleRow>`
    SELECT key, digest, size_bytes, kind, runtime, exports, imports FROM modules WHERE digest = ${digest}
    FOR KEY SHARE`.executePrepared(tx, 'hold-module')
  const row = rows[0]
  return row === undefined ? undefined : fromModuleRow(row)
}

export async function findModule(db: Queryable | Transaction, digest: string): Promise<ModuleFacts | undefined> {
  const { rows } = await sql<ModuleRow>`
    SELECT key, digest, size_bytes, kind, runtime, exports, imports FROM modules WHERE digest = ${digest}`.execute(db)
  const row = rows[0]
  return row === undefined ? undefined : fromModuleRow(row)
}

/** One chunk of a module; undefined beyond the end. */
export async function readChunk(database: Database, moduleKey: number, chunk: number): Promise<Buffer | undefined> {
  const { rows } = await sql<{ data: Buffer }>`
    SELECT data FROM module_chunks WHERE module_key = ${moduleKey} AND chunk = ${chunk}`.execute(database.db)
  return rows[0]?.data
}
