"""One attempt in a simulated process: performs the instructions of the real core, one at a time.

Its process can be killed between any two of them. What the board and slow work answer is heard in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from nimbus.attempt import model as m
from nimbus.attempt.life import Life, Pace
from nimbus.domain.attempts.slots import Claim, End, Holder
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptWithdrawnError
from nimbus.worker.attempt.verdict import judge
from tests.nimbus.attempts.driver import Driver, hold
from tests.nimbus.simulation.catalog import FAILING_CHILD
from tests.nimbus.simulation.zookeeper import SESSION_S

if TYPE_CHECKING:
    from tests.nimbus.simulation.host import Folder
    from tests.nimbus.simulation.processes import Process

GRACE_S = 5.0
_STUCK_S = 10.0
_URGENT = (m.PutClaim, m.PutEnd, m.ReadBoard, m.KeepCheckpoint, m.SendHeartbeat)
"""Requests to the board, in the order in which a process makes them."""


def holder_of(standing: Claim | None, ours: Claim) -> m.ClaimHolder:
    """Whose the claim on the board is."""
    if standing is None:
        return m.ClaimHolder.NONE
    return m.ClaimHolder.OURS if standing.nonce == ours.nonce else m.ClaimHolder.OTHER


class Shell:
    """An attempt in its runner."""

    holder = Holder.PROCESS
    pace: Pace | None = Pace()
    writes_as = "runner"

    def __init__(self, process: Process, folder: Folder) -> None:
        self.process, self.folder, self.world = process, folder, process.host.world
        digest = crc32(str(folder.attempt).encode())
        is_kept = self.world.ledger.runs.all[folder.attempt.run].tasks[folder.attempt.task].spec.keeps_running
        lost_after_s = self.world.policy.timings.host_lost_after.total_seconds()
        self.terms = m.Terms(
            timeout_s=self.world.dice.timeout_s(),
            stop_grace_s=GRACE_S,
            claim_valid_s=m.NEVER_S if self.holder is Holder.APPLICATION else SESSION_S / 2,
            stuck_after_s=_STUCK_S if self.holder is Holder.POOLED else m.NEVER_S,
            lease_s=lost_after_s + SESSION_S / 2 if is_kept else m.NEVER_S,
            is_program=digest % 5 == 0,
        )
        self.life = Life(self.terms, self.pace)
        self.driver = Driver(self.terms)
        self.claim = self.made_claim()
        self.world.drivers[str(self.claim.nonce)] = self.driver
        self.record: End | None = None
        self.is_over = self._is_delivered = self._knows_end = False
        self._asked: dict[type, m.Instruction] = {}
        """Requests to the board that wait, the newest one of each kind."""
        self._answers: list[m.Event] = []
        """What has happened, and was not heard yet."""
        self._asked_s = self._shown_s = 0.0
        self._fault = ""
        """Why the output could not be stored."""
        folder.shell = self
        self._follow(self.life.begin())

    def made_claim(self) -> Claim:
        """The claim that it asks for."""
        return Claim(
            attempt=str(self.folder.attempt),
            worker=self.folder.worker,
            host=self.process.host.id,
            holder=self.holder,
            claimed_at=self.world.worker_now(),
            nonce=f"n{self.world.next_pid()}",
        )

    def act(self) -> None:
        """Do some of what is due: seldom nothing is left."""
        if self.driver.runs:
            self._driver_goes_on()
        unheard = m.PutClaim in self._asked or (self._asked and not self.process.is_answered())
        if self.process.must_leave and unheard:
            self.tell(m.LeaveAsked())
        for _ in range(self.world.dice.stretch()):
            if not self._go_on():
                break

    def _go_on(self) -> bool:
        """Do one thing that is due. False: there is nothing to do now."""
        if self.is_over or not self.process.alive:
            return False
        moves = [self._hear] if self._answers else []
        if self._asked and self.process.is_answered():
            moves.append(self._ask_board)
        if self.life.due_s <= self.world.time.s:
            moves.append(self._tick)
        if moves:
            self.world.rng.choice(moves)()
        return bool(moves)

    def tell(self, event: m.Event) -> None:
        """Report an event."""
        self._knows_end |= isinstance(event, m.EndAnswered | m.AttemptGone)
        if isinstance(event, m.ClaimAnswered | m.BoardRead) and event.holder is m.ClaimHolder.OURS:
            self._shown_s = max(self._shown_s, event.asked_s)
        if isinstance(event, m.BoardRead) and event.is_useless:
            self._knows_end = True
            self._asked.pop(m.SendHeartbeat, None)
        self._follow(self.life.apply(event, self.world.time.s))

    def _follow(self, instructions: tuple[m.Instruction, ...]) -> None:
        for instruction in instructions:
            if self.world.dice.dies_now():
                self.world.story.note(self.folder.worker, "loses the process of", self.folder.attempt)
                self.process.die()
            if not self.process.alive:
                return
            self._perform(instruction)

    def _hear(self) -> None:
        self.tell(self._answers.pop(self.world.rng.randrange(len(self._answers))))

    def _tick(self) -> None:
        self.tell(m.Tick())

    # -- the board

    def _ask_board(self) -> None:
        """Make the most urgent request. Its answer may be lost, and then it is made again."""
        kind = next(kind for kind in _URGENT if kind in self._asked)
        try:
            event = self._request(self._asked[kind])
        except AttemptWithdrawnError:
            event = m.AttemptGone()
        if self.world.dice.answer_is_lost():
            return
        del self._asked[kind]
        if kind is m.PutEnd:  # a later heartbeat would belong to nothing
            self._asked.clear()
            self._is_delivered = True
        if event is not None:
            self._answers.append(event)

    def _request(self, asked: m.Instruction) -> m.Event | None:
        zookeeper, attempt = self.world.zookeeper, self.folder.attempt
        match asked:
            case m.PutClaim():
                holder = holder_of(zookeeper.claim(attempt, self.claim), self.claim)
                if holder is m.ClaimHolder.OURS and self.pace is not None:
                    self.process.session.heartbeat(attempt)  # in the same transaction
                return m.ClaimAnswered(holder, self._asked_s)
            case m.ReadBoard():
                slots = zookeeper.read(attempt)
                holder, is_over = holder_of(slots.claim, self.claim), slots.end is not None
                return m.BoardRead(
                    holder, self.world.time.s, is_over, slots.stop_requested, slots.has_heartbeat
                )
            case m.SendHeartbeat():
                hold(not self._knows_end, "a heartbeat after END, or of an attempt that is not ours")
                self.process.session.heartbeat(attempt)
            case m.PutEnd():
                return self._put_end()
            case _:
                pass
        return None

    def _put_end(self) -> m.Event:
        """Law: the record is on disk first, since this process can be killed now."""
        assert self.record is not None
        hold(self.folder.record is not None or not self.folder.has_room, "END before the exit record")
        end = self.world.zookeeper.end(self.record)
        return m.EndAnswered(f"{end.outcome} by {end.written_by}")

    # -- the driver

    def _driver_goes_on(self) -> None:
        driver = self.driver
        status = self.world.dice.status(told=driver.was_told)
        if status == 0 and self.folder.attempt.run.endswith(FAILING_CHILD):
            status = 1  # one item of each fan-out fails at first, so that a retry repeats it
        if status == 0 and not driver.was_told:  # else its code was interrupted
            driver.is_done = not self.terms.is_program
            if self.world.dice.lingers():
                return
        if status is not None:
            self._exit(status)

    def _exit(self, status: int) -> None:
        self.driver.exit(status, remains=self.world.dice.remains())
        self._answers.append(m.Exited(status, self.driver.is_done))

    def lose_driver(self) -> None:
        """The process that starts drivers has died, and all of them with it."""
        if self.driver.runs:
            self.driver.die(remains=self.world.dice.remains())
            self.driver.clear()
            self.tell(m.StarterDied())

    # -- instructions

    def _perform(self, instruction: m.Instruction) -> None:
        match instruction:
            case m.PutClaim():
                self._asked_s = self.world.time.s
                self._asked[m.PutClaim] = instruction
            case m.ReadBoard() | m.SendHeartbeat() | m.KeepCheckpoint() | m.PutEnd():
                if not self._is_delivered:
                    self._asked[type(instruction)] = instruction
            case m.ReadNotes():
                self.tell(m.NotesRead(self.world.dice.progress(), None))
            case m.Prepare():
                fresh = self.world.time.s - self._shown_s <= self.terms.claim_valid_s
                hold(fresh, "a driver is made ready long after the board showed the claim")
                self.tell(self._prepare())
            case m.StartDriver():
                fresh = self.world.time.s - self._shown_s <= self.terms.claim_valid_s
                hold(fresh, "a driver starts long after the board showed the claim")
                hold(not self._knows_end, "a driver starts though its END was read")
                self.driver.start()
                self.world.ledger.executed(self.folder.attempt, self._shown_s)
            case m.AskToEnd() | m.KillDriver() | m.KillStarter():
                self._drive(instruction)
            case _:
                self._finish(instruction)

    def _drive(self, instruction: m.AskToEnd | m.KillDriver | m.KillStarter) -> None:
        match instruction:
            case m.AskToEnd(_, kill):
                self.tell(m.ToldToEnd(self.driver.tell()))
                if kill and self.driver.runs:
                    self._exit(-9)
            case m.KillDriver():
                is_stuck = self.holder is Holder.POOLED and self.world.dice.gets_stuck()
                if self.driver.runs and not is_stuck:
                    self._exit(-9)
            case m.KillStarter():
                self.process.kill_starter()

    def _finish(
        self, instruction: m.Clear | m.Commit | m.Record | m.StoreLog | m.ForgetAttempt | m.LeaveAttempt
    ) -> None:
        match instruction:
            case m.Clear():
                self._clear()
            case m.Commit():
                self._fault = self.world.dice.commit_fault(full=self.folder.host.full)
                self.driver.commit(fails=bool(self._fault))
                self._answers.append(m.Committed(self._fault))
            case m.Record(story):
                self.driver.record(story)
                self.record = self._end(story)
                self._keep_record()
            case m.StoreLog():
                self._store_log()
            case m.ForgetAttempt():
                self._forget()
            case m.LeaveAttempt():
                self._leave()

    def _prepare(self) -> m.Event:
        if not self.folder.host.full:
            self.folder.claim = self.claim
        elif self.world.rng.random() < 0.5:
            self.process.die()  # with the error of the disk
        return m.Unfit("its disk is full") if self.folder.host.full else m.Prepared()

    def _clear(self) -> None:
        self.driver.clear()
        self._answers.append(m.Cleared())

    def _keep_record(self) -> None:
        self.folder.record_exit(self.record)
        self._answers.append(m.Recorded())

    def _store_log(self) -> None:
        self._answers.append(m.LogStored(self.world.dice.log_is_stored()))

    def _forget(self) -> None:
        """On a full disk the note fails, and ends the process; a worker does it again."""
        self.driver.forget(self.folder.attempt)
        if not self.folder.host.full:
            self.folder.delivered = True
        self._leave()

    def _leave(self) -> None:
        self.is_over = True
        self.process.done_with(self)

    def _end(self, story: m.Story) -> End:
        verdict = judge(story, is_program=self.terms.is_program, timeout=None, log_tail="")
        is_success = verdict.outcome is Outcome.SUCCEEDED
        is_failure = verdict.outcome is Outcome.FAILED
        return End(
            attempt=str(self.folder.attempt),
            outcome=verdict.outcome,
            failure=self.world.dice.failure() if is_failure else verdict.failure,
            written_by=self.writes_as,
            ended_at=self.world.worker_now(),
            reason=verdict.reason,
            nonce=self.claim.nonce,
            output=str(self.folder.attempt) if is_success else None,
            result={"given": str(self.folder.attempt)} if is_success else None,
        )
