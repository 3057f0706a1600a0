export { DeletionQuery } from './schema.ts'
export { createMessageDeletion } from './service.ts'
export type { MessageDeletion } from './service.ts'
