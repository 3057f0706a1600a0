export { isolate, preferToLose } from './launch-options.ts'
export { reachableFolder } from './reachable-folder.ts'
export { residentBytesOf } from './resident.ts'
export { stageCode, toStagedPath } from './staging.ts'
