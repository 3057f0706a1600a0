export { DeletionQuery } from './schema.ts'
export { MessageDeletion } from './service.ts'
