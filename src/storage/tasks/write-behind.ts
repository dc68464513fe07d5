/** Worker task: writes for a thread that receives a large copy (storage/lent-writer.ts). */
import { makeFilesAs } from '../../sys/users/file-system-ids.js';
import { serveLoan, type WriterLoan } from '../lent-writer.js';

export async function writeBehind(loan: WriterLoan): Promise<void> {
  makeFilesAs(loan.owner);
  serveLoan(loan);
}
