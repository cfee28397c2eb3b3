#include "services/retrieval/router/replication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kCorpus = 7;
constexpr uint64_t kGeneration = 70;
constexpr IndexKey kKey = {kCorpus, kGeneration};
constexpr ReplicaId kFirst = {0, 0};
constexpr ReplicaId kTwin = {0, 1};
constexpr ReplicaId kOther = {1, 0};

// Two replicas of shard 0, one of shard 1; one corpus with changes up to 10.
class ReplicationTest : public ::testing::Test {
 protected:
  ReplicationTest() { replication_.open_corpus(kCorpus, {kGeneration}, 10); }

  static IndexState at(uint64_t applied, IndexKey key = kKey) {
    return {.key = key, .applied = applied, .floor = applied};
  }

  void connect(ReplicaId replica, uint64_t applied) {
    replication_.connected(replica, std::vector{at(applied)});
  }

  // The generation a search would use; none if it could not go on.
  std::optional<uint64_t> searchable(uint64_t min_sequence = 0) {
    const auto found = replication_.candidates(kCorpus, min_sequence);
    return found.has_value() ? std::optional(found->key.generation) : std::nullopt;
  }

  Replication replication_{std::vector<uint32_t>{2, 1}};
};

TEST_F(ReplicationTest, FillsAFreshReplicaFromTheBegin) {
  replication_.connected(kFirst, {});
  auto task = replication_.next_task(kFirst);
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->kind, ReplicaTask::Kind::kCreate);
  EXPECT_EQ(task->key, kKey);
  replication_.updated(kFirst, at(0));
  task = replication_.next_task(kFirst);
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->kind, ReplicaTask::Kind::kPush);
  EXPECT_EQ(task->position.sequence, 0u);
  replication_.updated(kFirst, {.key = kKey, .applied = 4, .floor = 10, .origin = 10});
  task = replication_.next_task(kFirst);
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->position.sequence, 4u);
  EXPECT_EQ(task->position.origin, 10u);
  replication_.updated(kFirst, at(10));
  EXPECT_FALSE(replication_.next_task(kFirst).has_value());
}

TEST_F(ReplicationTest, DropsWhatNobodySearches) {
  const IndexKey foreign = {99, 1};
  replication_.connected(kFirst, std::vector{at(10), at(3, foreign)});
  const auto task = replication_.next_task(kFirst);
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->kind, ReplicaTask::Kind::kDrop);
  EXPECT_EQ(task->key, foreign);
}

TEST_F(ReplicationTest, BeginsAnewWhereAReplicaIsAheadOfTheStore) {
  connect(kFirst, 11);
  const auto task = replication_.next_task(kFirst);
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->kind, ReplicaTask::Kind::kCreate);
}

TEST_F(ReplicationTest, SearchesOnlyReplicasThatHaveWhatWasAcknowledged) {
  connect(kFirst, 9);
  connect(kOther, 10);
  EXPECT_EQ(searchable(), std::nullopt);
  connect(kTwin, 10);
  for (int i = 0; i < 3; ++i) {
    const auto found = replication_.candidates(kCorpus, 0);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->min_sequence, 10u);
    EXPECT_THAT(found->replicas, ElementsAre(ElementsAre(1), ElementsAre(0)));
  }
  // As far as 10, but read of the log when it was at 12: changes in between are missing.
  replication_.updated(kTwin, {.key = kKey, .applied = 10, .floor = 12});
  EXPECT_EQ(searchable(), std::nullopt);
}

TEST_F(ReplicationTest, AsksReplicasInTurn) {
  connect(kFirst, 10);
  connect(kTwin, 10);
  connect(kOther, 10);
  const auto first = replication_.candidates(kCorpus, 0)->replicas[0];
  const auto second = replication_.candidates(kCorpus, 0)->replicas[0];
  EXPECT_THAT(first, SizeIs(2));
  EXPECT_EQ(first[0], second[1]);
  EXPECT_EQ(first[1], second[0]);
}

TEST_F(ReplicationTest, AcknowledgesWhenEachShardHasAReplicaWithTheCommit) {
  connect(kFirst, 10);
  connect(kTwin, 10);
  connect(kOther, 10);
  replication_.committed(kCorpus, 12, 1);
  EXPECT_THAT(replication_.advance().acknowledged, IsEmpty());
  replication_.updated(kTwin, at(12));
  EXPECT_THAT(replication_.advance().acknowledged, IsEmpty());
  EXPECT_EQ(searchable(), kGeneration);  // not acknowledged: the other shard may lack it
  replication_.updated(kOther, at(12));
  EXPECT_THAT(replication_.advance().acknowledged, ElementsAre(1));
  EXPECT_THAT(replication_.candidates(kCorpus, 0)->replicas,
              ElementsAre(ElementsAre(1), ElementsAre(0)));
}

TEST_F(ReplicationTest, WaitsForAShardWithoutReplicaOnlyUntilToldNotTo) {
  connect(kFirst, 12);
  replication_.committed(kCorpus, 12, 1);
  EXPECT_THAT(replication_.advance().acknowledged, IsEmpty());
  replication_.give_up(1);
  EXPECT_THAT(replication_.advance().acknowledged, ElementsAre(1));
  connect(kOther, 10);
  EXPECT_EQ(searchable(), std::nullopt) << "it does not have what was acknowledged";
  replication_.updated(kOther, at(12));
  EXPECT_EQ(searchable(), kGeneration);
}

TEST_F(ReplicationTest, WaitsForAConnectedReplicaHoweverLong) {
  connect(kFirst, 12);
  connect(kOther, 10);
  replication_.committed(kCorpus, 12, 1);
  replication_.give_up(1);
  EXPECT_THAT(replication_.advance().acknowledged, IsEmpty());
}

TEST_F(ReplicationTest, SearchesTheOlderGenerationUntilEveryShardHasTheNewer) {
  const IndexKey newer = {kCorpus, 71};
  replication_.connected(kFirst, std::vector{at(10)});
  replication_.connected(kOther, std::vector{at(10)});
  replication_.add_generation(kCorpus, newer.generation);
  EXPECT_EQ(replication_.next_task(kFirst)->kind, ReplicaTask::Kind::kCreate);
  replication_.updated(kFirst, at(10, newer));
  replication_.updated(kOther, {.key = newer, .applied = 5, .floor = 10});
  EXPECT_THAT(replication_.advance().retired, IsEmpty());
  EXPECT_EQ(searchable(), kGeneration);
  replication_.updated(kOther, at(10, newer));
  EXPECT_THAT(replication_.advance().retired, ElementsAre(kKey));
  EXPECT_EQ(searchable(), newer.generation);
  const auto task = replication_.next_task(kFirst);
  EXPECT_EQ(task->kind, ReplicaTask::Kind::kDrop);
  EXPECT_EQ(task->key, kKey);
}

TEST_F(ReplicationTest, FillsANewGenerationWithoutHoldingUpTheOldOne) {
  const IndexKey newer = {kCorpus, 71};
  replication_.add_generation(kCorpus, newer.generation);
  replication_.connected(kFirst, std::vector{at(10), at(0, newer)});
  replication_.committed(kCorpus, 20, 1);
  const IndexKey first = replication_.next_task(kFirst)->key;
  const IndexKey second = replication_.next_task(kFirst)->key;
  EXPECT_NE(first, second);
}

TEST_F(ReplicationTest, AcknowledgesCommitsOfAClosedCorpus) {
  replication_.committed(kCorpus, 12, 1);
  replication_.close_corpus(kCorpus);
  EXPECT_THAT(replication_.advance().acknowledged, ElementsAre(1));
  connect(kFirst, 10);
  EXPECT_EQ(replication_.next_task(kFirst)->kind, ReplicaTask::Kind::kDrop);
}

TEST_F(ReplicationTest, TellsWhichShardsServe) {
  EXPECT_EQ(replication_.serving_replica(0), std::nullopt);
  connect(kTwin, 10);
  EXPECT_EQ(replication_.serving_replica(0), 1u);
  EXPECT_EQ(replication_.lag(kTwin), 0u);
  replication_.committed(kCorpus, 15, 1);
  EXPECT_EQ(replication_.lag(kTwin), 5u);
  replication_.disconnected(kTwin);
  EXPECT_EQ(replication_.serving_replica(0), std::nullopt);
}

}  // namespace
}  // namespace ragcache::retrieval
