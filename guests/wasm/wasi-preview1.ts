/**
 * The functions of WASI preview 1 (`wasi_snapshot_preview1`) with their signatures, which a module may import. Both the check of
 * imports and the runtime use this table.
 */
import type { ModuleImport } from './module-reader.ts'
import type { ValueType } from './value-types.ts'

export const WASI_PREVIEW1_MODULE = 'wasi_snapshot_preview1'

/** One letter per parameter: i = i32, I = i64. Every function returns one i32 (errno), except `proc_exit`. */
const PARAMETERS = {
  args_get: 'ii',
  args_sizes_get: 'ii',
  clock_res_get: 'ii',
  clock_time_get: 'iIi',
  environ_get: 'ii',
  environ_sizes_get: 'ii',
  fd_advise: 'iIIi',
  fd_allocate: 'iII',
  fd_close: 'i',
  fd_datasync: 'i',
  fd_fdstat_get: 'ii',
  fd_fdstat_set_flags: 'ii',
  fd_fdstat_set_rights: 'iII',
  fd_filestat_get: 'ii',
  fd_filestat_set_size: 'iI',
  fd_filestat_set_times: 'iIIi',
  fd_pread: 'iiiIi',
  fd_prestat_dir_name: 'iii',
  fd_prestat_get: 'ii',
  fd_pwrite: 'iiiIi',
  fd_read: 'iiii',
  fd_readdir: 'iiiIi',
  fd_renumber: 'ii',
  fd_seek: 'iIii',
  fd_sync: 'i',
  fd_tell: 'ii',
  fd_write: 'iiii',
  path_create_directory: 'iii',
  path_filestat_get: 'iiiii',
  path_filestat_set_times: 'iiiiIIi',
  path_link: 'iiiiiii',
  path_open: 'iiiiiIIii',
  path_readlink: 'iiiiii',
  path_remove_directory: 'iii',
  path_rename: 'iiiiii',
  path_symlink: 'iiiii',
  path_unlink_file: 'iii',
  poll_oneoff: 'iiii',
  proc_exit: 'i',
  proc_raise: 'i',
  random_get: 'ii',
  sched_yield: '',
  sock_accept: 'iii',
  sock_recv: 'iiiiii',
  sock_send: 'iiiii',
  sock_shutdown: 'ii',
} as const

export type WasiPreview1Function = keyof typeof PARAMETERS

export const WASI_PREVIEW1_FUNCTIONS = Object.keys(PARAMETERS) as WasiPreview1Function[]

/** `(i32, i64) -> (i32)` of a function of the table. */
export function wasiPreview1Signature(name: WasiPreview1Function): { params: ValueType[]; results: ValueType[] } {
  return {
    params: Array.from(PARAMETERS[name], (letter) => (letter === 'I' ? 'i64' : 'i32')),
    results: name === 'proc_exit' ? [] : ['i32'],
  }
}

/** True when the import is one of the table, by name and by signature. */
export function isWasiPreview1Import(wanted: ModuleImport): boolean {
  if (wanted.module !== WASI_PREVIEW1_MODULE || wanted.kind !== 'function' || wanted.type === undefined) return false
  if (!Object.hasOwn(PARAMETERS, wanted.name)) return false
  const offered = wasiPreview1Signature(wanted.name as WasiPreview1Function)
  return offered.params.join() === wanted.type.params.join() && offered.results.join() === wanted.type.results.join()
}
